"""What a training would take, told beforehand: memory, operations, hours; and the options that save memory or time and change nothing."""

import copy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.commands.train import train
from saccade.model.detector import Detector
from saccade.training.objective import learn
from saccade.training.plan import GPUS, Plan, _flops, _kept, plan_training
from saccade.training.processes import Processes
from saccade.types import InputError
from tests.training.make import tiny_config, tiny_settings, toys, weights_file
from tests.training.test_waiting import a_batch


def plan_of(tmp_path: Path, gpus: int = 1, **changes: Any) -> Plan:
    settings = tiny_settings(**{"model": str(weights_file(tmp_path)), "batch": 8, "workers": 1, **changes})
    return plan_training(toys(), settings, gpus=gpus, seconds=0.0)


def test_a_plan_adds_up(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, steps=1000)
    assert plan.parameters == sum(parameter.numel() for parameter in Detector(tiny_config()).parameters())
    assert plan.size == (64, 64)
    assert 0.4 < plan.labelled < 0.6
    assert plan.hours == pytest.approx(1000 / plan.steps_per_s / 3600)
    text = plan.table()
    assert f"{plan.parameters:,} parameters" in text
    assert "estimate" in text
    assert max(map(len, text.splitlines())) < 140


def test_more_gpus_share_the_work_and_the_memory(tmp_path: Path) -> None:
    one, four = plan_of(tmp_path), plan_of(tmp_path, 4)
    assert four.stored_bytes == pytest.approx(one.stored_bytes / 4, rel=0.2)  # the share of labelled frames is measured
    assert four.eaten_rate == pytest.approx(one.eaten_rate, rel=0.2)
    assert replace(one, settings=replace(one.settings, precision="bf16")).eaten_rate > 10 * one.eaten_rate


def test_options_that_save_memory_save_it_in_the_plan(tmp_path: Path) -> None:
    plain = plan_of(tmp_path).stored_bytes
    assert plan_of(tmp_path, recompute=True).stored_bytes < 0.8 * plain
    assert plan_of(tmp_path, accumulation=2).stored_bytes == pytest.approx(plain / 2, rel=0.2)
    assert plan_of(tmp_path, precision="bf16").stored_bytes == pytest.approx(plain / 2, rel=0.2)


def test_what_is_too_large_is_said(tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path), stored_bytes=1e9 * GPUS["a100"].memory_gb)
    assert "does NOT fit" in plan.table()
    with pytest.raises(InputError, match="can't be shared by 9 GPUs"):
        plan_of(tmp_path, 9)


def test_operations_of_the_cpus_own_ways_are_counted() -> None:
    """In double precision, none of them is taken, and torch counts all by itself."""
    detector = Detector(tiny_config(dims=(32, 64, 128, 256), head_dim=32)).eval()
    frames = (torch.rand(1, 1, 2, 64, 64) < 0.02).to(torch.uint8)
    found = _flops(detector, frames, 0.5, recompute=False)
    twin = copy.deepcopy(detector).double()
    from torch.utils.flop_counter import FlopCounterMode

    memory = tuple(tuple(tensor.double() for tensor in layer) for layer in detector.initial_state(frames))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        pyramid, _ = twin.encode(frames.double(), memory)
    whole = counter.get_total_flops()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        twin.detect(pyramid)
    assert found == pytest.approx(3 * whole + 1.5 * counter.get_total_flops(), rel=0.02)


def test_the_command_plans_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade import api

    monkeypatch.setattr(api, "training_data", lambda *_, **__: (toys(), None))
    train(tmp_path / "data", tmp_path / "out", tiny_settings(model=str(weights_file(tmp_path)), batch=8), plan=True, workers=2)
    assert "steps/s" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("memory", ["s5", "lstm"])
def test_recomputing_gives_the_same_gradients_and_keeps_less(memory: str) -> None:
    settings = tiny_settings()
    torch.manual_seed(0)
    detector = Detector(tiny_config(memories=(memory,) * 4))
    twin = copy.deepcopy(detector)
    twin.backbone.recompute = True
    batch = a_batch(detector, settings)
    states, kept = [], []
    for one in (detector, twin):
        size, (_, state) = _kept(lambda one=one: learn(one, batch, one.initial_state(batch.frames), settings, Processes()))
        states.append(state)
        kept.append(size)
    for own, other in zip(detector.parameters(), twin.parameters(), strict=True):
        assert own.grad is not None
        assert torch.equal(own.grad, other.grad)  # type: ignore[arg-type]
    for own, other in zip(*(sum(state, ()) for state in states), strict=True):
        assert torch.equal(own, other)
    assert kept[1] < 0.8 * kept[0]


def test_the_state_stays_in_full_precision() -> None:
    """bf16 has eight bits: a memory of seconds would lose what it adds up."""
    settings = tiny_settings(precision="bf16")
    for memory in ("s5", "gs5", "s4d", "lstm"):
        detector = Detector(tiny_config(memories=(memory,) * 4))
        batch = a_batch(detector, settings)
        _, state = learn(detector, batch, detector.initial_state(batch.frames), settings, Processes())
        assert {tensor.dtype for layer in state for tensor in layer} == {torch.float32}
        assert {parameter.grad.dtype for parameter in detector.parameters() if parameter.grad is not None} == {torch.float32}


def compiled_backbone() -> None:
    """The losses of two batches, with the state between them, as without the compiler."""
    settings = tiny_settings(length=2, batch=2)
    torch.manual_seed(0)
    detector = Detector(tiny_config())
    twin = copy.deepcopy(detector)
    twin.backbone.compile()
    batch = a_batch(detector, settings)
    for one in (detector, twin):
        learn(one, batch, one.initial_state(batch.frames), settings, Processes())
    terms = [learn(one, batch, one.initial_state(batch.frames), settings, Processes())[0].read().terms for one in (detector, twin)]
    assert terms[1] == pytest.approx(terms[0], rel=1e-4)
    for (name, own), other in zip(detector.named_parameters(), twin.parameters(), strict=True):
        assert own.grad is not None
        assert other.grad is not None
        unit = max(float(own.grad.abs().max()), 1e-6)
        torch.testing.assert_close(other.grad / unit, own.grad / unit, rtol=0, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    assert list(twin.state_dict()) == list(detector.state_dict())


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # g++ beside other work
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler, which torch.compile needs on a CPU")
def test_a_compiled_backbone_has_the_same_loss_and_gradients() -> None:
    """In a process of its own: the compiler can't see through the tests' shape checks."""
    code = "from tests.training.test_plan import compiled_backbone; compiled_backbone()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert result.returncode == 0, result.stderr[-3000:]
