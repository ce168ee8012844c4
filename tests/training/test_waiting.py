"""A step asks a GPU once for values. Without one: the same step on torch's `meta` device, which has no values and refuses to give any."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from saccade.datasets.loader import Batch, Loader
from saccade.datasets.recording import Sampling
from saccade.model.detector import Detector
from saccade.model.values import change
from saccade.training.checkpoint import MovingAverage
from saccade.training.objective import Pending, learn
from saccade.training.processes import Processes
from saccade.training.settings import TrainingSettings
from tests.training.make import tiny_config, tiny_settings, toys


def a_batch(detector: Detector, settings: TrainingSettings) -> Batch:
    with Loader(toys(), Sampling.of(detector.config), settings.lanes, batch=settings.batch, length=settings.length, workers=0) as loader:
        return next(iter(loader))


def queue(detector: Detector, batch: Batch, settings: TrainingSettings) -> Pending:
    """All of a step but the one look at its numbers."""
    state = change(detector.initial_state(batch.frames), torch.clone)
    average = MovingAverage(detector)
    optimiser = torch.optim.AdamW(detector.parameters(), foreach=True)
    pending, _ = learn(detector, batch, state, settings, Processes(device=batch.frames.device))
    torch.nn.utils.clip_grad_value_(detector.parameters(), settings.gradient_clip)
    optimiser.step()
    average.update(detector, 0.9)
    return pending


@pytest.fixture
def _meta_has_no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has none for that device; switched off, as it is here, it does nothing on any."""
    autocast, enabled = torch.autocast, torch.is_autocast_enabled

    def or_nothing(device: str, *arguments: Any, **options: Any) -> Any:
        return nullcontext() if device == "meta" else autocast(device, *arguments, **options)

    monkeypatch.setattr(torch, "autocast", or_nothing)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device != "meta" and enabled(device))


CHANGES = ({}, {"h2_weight": 0.1, "l1": True}, {"accumulation": 2})


@pytest.mark.usefixtures("_meta_has_no_autocast")
@pytest.mark.parametrize(
    ("memory", "changes"), [*(("s5", changes) for changes in CHANGES), *((memory, {}) for memory in ("gs5", "s4d", "s4", "lstm"))], ids=str
)
@pytest.mark.parametrize("steps", ["equal", "unequal"])
def test_nothing_of_a_step_needs_a_value(memory: str, changes: dict[str, Any], steps: str) -> None:
    """Neither numbers nor shapes: the number of labels is known on the host, that of positives stays on the device."""
    settings = tiny_settings(**changes)
    detector = Detector(tiny_config(memories=(memory,) * 4))
    batch = a_batch(detector, settings)
    assert batch.counts
    assert bool((batch.dt == batch.dt[0, 0]).all())
    if steps == "unequal":
        batch = replace(batch, dt=batch.dt + torch.arange(batch.dt.numel()).view_as(batch.dt) % 3)
    pending = queue(detector.to("meta"), batch.to("meta"), settings)
    assert pending.values.device.type == "meta"
    with pytest.raises(Exception, match="meta"):  # which would be the one wait
        pending.read()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_gpu_is_asked_once(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch raises at every wait but that of `read`."""
    settings = tiny_settings(**changes)
    detector = Detector(tiny_config()).cuda()
    batch = a_batch(detector, settings).pin_memory().to("cuda")
    queue(detector, batch, settings)  # the first time, kernels are loaded
    torch.cuda.set_sync_debug_mode("error")
    try:
        pending = queue(detector, batch, settings)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert pending.read().finite


def test_the_numbers_of_a_step_come_in_one_piece() -> None:
    settings = tiny_settings(h2_weight=0.1)
    detector = Detector(tiny_config())
    batch = a_batch(detector, settings)
    learned = queue(detector, batch, settings).read()
    assert learned.labelled == len(batch.counts)
    assert learned.finite
    assert not learned.stop
    parts = sum(value for name, value in learned.terms.items() if name != "total")
    assert learned.terms["total"] == pytest.approx(parts, rel=1e-4)
