"""A training learns, is the same twice, and goes on after a kill as if nothing had happened."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from saccade.datasets.check import warn_of_dropped_labels
from saccade.datasets.recording import Dataset
from saccade.evaluation.validate import validate
from saccade.pool import Stopped
from saccade.training.checkpoint import load_checkpoint
from saccade.training.log import Log, read_metrics
from saccade.training.loop import fit
from saccade.types import InputError
from saccade.weights.load import load_detector, read_weights, save_detector
from tests.training.make import Toy, run, tiny_config, tiny_settings, toys, weights_file


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(weights_file(tmp_path_factory.mktemp("weights")))


def losses(out: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["total"]) for row in read_metrics(out / "metrics.jsonl") if row["kind"] == "train"]


def start(out: Path, weights: str, *changes: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.training.make", str(out), weights, *changes]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)


def wait_for_step(out: Path, step: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 200
    while len(read_metrics(out / "metrics.jsonl")) < step:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "the training didn't get there"
        time.sleep(0.02)


@pytest.mark.slow
def test_it_learns(tmp_path: Path, weights: str) -> None:
    settings = tiny_settings(model=weights, steps=120, learning_rate=6e-3, warmup=0.1, average=0.9)
    scores = fit(toys(recordings=6), toys("val", 2), tmp_path, settings)
    assert scores is not None
    assert scores.mAP > 40
    assert scores.still == 20
    rows = losses(tmp_path)
    assert sum(total for _, total in rows[-20:]) < 0.5 * sum(total for _, total in rows[:20])


def test_the_folder_holds_what_was_promised(tmp_path: Path, weights: str) -> None:
    settings = tiny_settings(model=weights, steps=3, log=("tensorboard",))
    fit(toys(), toys("val", 1), tmp_path, settings)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [(row["kind"], row["step"]) for row in rows] == [("train", 1), ("train", 2), ("train", 3), ("validation", 3)]
    assert {"total", "iou", "objectness", "class", "positives", "learning_rate", "frames_per_s", "memory_mb"} <= set(rows[0])
    for name in ("final.safetensors", "best.safetensors"):
        notes = read_weights(tmp_path / name).training
        assert notes["steps"] == 3
        assert notes["settings"]["seed"] == 0
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"
    assert list((tmp_path / "tensorboard").iterdir())
    assert json.loads((tmp_path / "settings.json").read_text())["steps"] == 3


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_checkpoint_opens_as_the_weights_so_far(tmp_path: Path, weights: str, average: float) -> None:
    """Whoever stops a training early, because its best weights were earlier or because time is over, needs no last step."""
    fit(toys(), None, tmp_path, tiny_settings(model=weights, steps=3, average=average))
    found, final = read_weights(tmp_path / "last.pt"), read_weights(tmp_path / "final.safetensors")
    assert found.config == final.config
    assert found.training["steps"] == 3
    assert set(found.tensors) == set(final.tensors)
    for name, value in final.tensors.items():
        torch.testing.assert_close(found.tensors[name], value, rtol=0, atol=0)
    content = torch.load(tmp_path / "last.pt", weights_only=True)
    torch.save({**content, "binding": "{}"}, tmp_path / "damaged.pt")
    with pytest.raises(InputError, match=r"damaged.pt: a checkpoint of a training without its settings"):
        load_detector(tmp_path / "damaged.pt")


def test_the_last_weights_are_scored_by_a_protocol(tmp_path: Path, weights: str) -> None:
    settings = tiny_settings(model=weights, steps=2, final_protocol="prophesee")
    scores = fit(toys(), toys("val", 1), tmp_path, settings)
    assert scores is not None
    *_, usual, final = read_metrics(tmp_path / "metrics.jsonl")
    assert "protocol" not in usual
    assert (final["protocol"], final["step"], final["mAP"]) == ("prophesee", 2, scores.mAP)
    assert read_weights(tmp_path / "final.safetensors").training["protocol"] == "prophesee"
    assert validate(load_detector(tmp_path / "final.safetensors"), toys("val", 1), protocol="prophesee").mAP == pytest.approx(scores.mAP)


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path, weights: str) -> None:
    """Its checkpoint knows nothing of settings that came later; what they are by default is what it did."""
    fit(toys(), None, tmp_path, tiny_settings(model=weights, steps=1))
    path = tmp_path / "last.pt"
    values = torch.load(path, weights_only=True)
    wanted, earlier = json.loads(values["binding"]), json.loads(values["binding"])
    for name in ("memory", "tf32"):
        del earlier[name]
    for name in ("blocks", "step_limits"):
        del earlier["config"]["backbone"]["memory"][name]
    torch.save({**values, "binding": json.dumps(earlier)}, path)
    found = load_checkpoint(tmp_path, wanted)
    assert found is not None
    assert found.step == 1
    wanted["memory"]["blocks"] = 4
    with pytest.raises(InputError, match=r"memory.blocks: there 0, here 4"):
        load_checkpoint(tmp_path, wanted)


def test_the_same_seed_gives_the_same_losses_with_any_number_of_workers(tmp_path: Path, weights: str) -> None:
    for name, workers in (("a", 0), ("b", 1)):
        fit(toys(), None, tmp_path / name, tiny_settings(model=weights, steps=4, workers=workers))
    fit(toys(), None, tmp_path / "c", tiny_settings(model=weights, steps=4, seed=1))
    assert losses(tmp_path / "a") == losses(tmp_path / "b") != losses(tmp_path / "c")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, weights: str) -> Path:
    """A training of eight steps that nobody interrupted."""
    out = tmp_path_factory.mktemp("whole")
    run(out, weights, "steps=8")
    return out


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", [1, 5])
def test_killed_at_any_step_and_resumed_the_losses_are_those_of_the_whole_run(
    tmp_path: Path, weights: str, whole: Path, killed_after: int
) -> None:
    process = start(tmp_path, weights, "steps=8", "checkpoint_every=3")
    wait_for_step(tmp_path, killed_after, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "final.safetensors").exists()
    run(tmp_path, weights, "steps=8", "checkpoint_every=3")
    assert losses(tmp_path) == losses(whole)
    once, again = (load_detector(out / "final.safetensors").state_dict() for out in (whole, tmp_path))
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_asked_to_stop_it_finishes_the_step_and_goes_on_later(
    tmp_path: Path, weights: str, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny_settings(model=weights, steps=8, checkpoint_every=100)
    before = signal.getsignal(signal.SIGTERM)
    asked = []

    def ask(self: object, step: int, values: dict) -> None:
        if step == 3 and not asked:
            asked.append(os.kill(os.getpid(), signal.SIGTERM))
        original(self, step, values)

    original = Log.step
    monkeypatch.setattr(Log, "step", ask)
    with pytest.raises(Stopped, match="after step 4 of 8"):
        fit(toys(), None, tmp_path, settings)
    assert signal.getsignal(signal.SIGTERM) is before
    fit(toys(), None, tmp_path, settings)
    assert losses(tmp_path) == losses(whole)


@pytest.mark.parametrize(("asked", "error"), [(False, InputError), (True, Stopped)])
def test_a_lost_reader_ends_in_a_checkpoint(
    tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch, asked: bool, error: type[BaseException]
) -> None:
    """A cluster signals every process of a job: the workers die, the training still saves what it has."""
    original = Log.step

    def kill_workers(self: Log, step: int, values: dict) -> None:
        original(self, step, values)
        if step == 3:
            if asked:
                os.kill(os.getpid(), signal.SIGTERM)
            for worker in multiprocessing.active_children():
                worker.terminate()
                worker.join()

    settings = tiny_settings(model=weights, steps=30, workers=1, checkpoint_every=100)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "step", kill_workers)
        with pytest.raises(error, match=r"after step \d"):
            fit(toys(), None, tmp_path, settings)
    assert torch.load(tmp_path / "last.pt", weights_only=True)["step"] >= 3


def test_other_settings_are_not_resumed(tmp_path: Path, weights: str) -> None:
    settings = tiny_settings(model=weights, steps=2)
    fit(toys(), None, tmp_path, settings)
    with pytest.raises(InputError, match=r"learning_rate: there 0.002, here 0.004"):
        fit(toys(), None, tmp_path, replace(settings, learning_rate=4e-3))
    with pytest.raises(InputError, match="lanes: there"):
        fit(toys(recordings=5), None, tmp_path, settings)
    before = (tmp_path / "final.safetensors").stat().st_mtime_ns
    fit(toys(), None, tmp_path, replace(settings, workers=1, checkpoint_every=7))  # finished: nothing left to do
    assert (tmp_path / "final.safetensors").stat().st_mtime_ns == before


def test_a_damaged_checkpoint_is_named(tmp_path: Path, weights: str) -> None:
    settings = tiny_settings(model=weights, steps=2)
    fit(toys(), None, tmp_path, settings)
    (tmp_path / "last.pt").write_bytes((tmp_path / "last.pt").read_bytes()[:1000])
    with pytest.raises(InputError, match=r"last.pt: can't be read"):
        fit(toys(), None, tmp_path, settings)


def test_nan_stops_the_training_and_keeps_the_batch(tmp_path: Path, weights: str) -> None:
    """A rate so high that the weights overflow: the loss turns NaN, and no checkpoint has seen it."""
    settings = tiny_settings(model=weights, steps=50, learning_rate=1e20, warmup=0.0, checkpoint_every=1)
    with pytest.raises(InputError, match=r"is NaN or infinite; the weights weren't touched.*nan_batch.pt"):
        fit(toys(), None, tmp_path, settings)
    kept = torch.load(tmp_path / "nan_batch.pt", weights_only=True)
    assert kept["frames"].shape == (4, 4, 2, 64, 64)
    assert kept["step"] == len(losses(tmp_path)) + 1
    assert len(kept["boxes"]) == sum(kept["counts"])


def test_parts_of_a_batch_learn_the_same_but_for_batch_norms(tmp_path: Path, weights: str) -> None:
    """Batch norms see a part, so only roughly."""
    for parts in (1, 2):
        fit(toys(), None, tmp_path / str(parts), tiny_settings(model=weights, steps=3, accumulation=parts))
    whole, parted = (losses(tmp_path / str(parts)) for parts in (1, 2))
    assert [step for step, _ in whole] == [step for step, _ in parted]
    assert [total for _, total in parted] == pytest.approx([total for _, total in whole], rel=0.3)


def test_half_precision_and_h2_learn_nearly_the_same(tmp_path: Path, weights: str) -> None:
    for name, change in {"fp32": {}, "bf16": {"precision": "bf16"}, "h2": {"h2_weight": 0.1}}.items():
        fit(toys(), None, tmp_path / name, tiny_settings(model=weights, steps=2, **change))
    single, half = losses(tmp_path / "fp32"), losses(tmp_path / "bf16")
    assert single != half
    assert [total for _, total in half] == pytest.approx([total for _, total in single], rel=0.1)
    rows = read_metrics(tmp_path / "h2" / "metrics.jsonl")
    assert all(0 < row["h2"] < row["total"] for row in rows)
    assert rows[0]["total"] - rows[0]["h2"] == pytest.approx(single[0][1], rel=1e-5)


def test_it_starts_from_weights_of_other_classes(tmp_path: Path, weights: str) -> None:
    """Every tensor is taken over but the outputs of the classes."""
    three = replace(toys(), classes=("bright", "dark", "grey"))
    fit(three, None, tmp_path, tiny_settings(model=weights, steps=1, learning_rate=1e-12))
    old, new = read_weights(weights).tensors, read_weights(tmp_path / "final.safetensors")
    assert new.config.classes == ("bright", "dark", "grey")
    assert new.config.trained_size == (three.recordings[0].width, three.recordings[0].height)
    changed = {name for name, value in new.tensors.items() if value.shape != old[name].shape}
    assert changed == {f"head.scales.{scale}.classes.{part}" for scale in range(3) for part in ("weight", "bias")}


def test_a_missing_logger_is_named_with_its_extra(tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"saccade-events\[wandb\]"):
        fit(toys(), None, tmp_path, tiny_settings(model=weights, log=("wandb",)))


def test_an_unknown_model_is_refused_with_the_presets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a weights file nor one of .*s5-vit-nano"):
        fit(toys(), None, tmp_path, tiny_settings(model="s5-vit-huge"))


def test_a_detector_that_no_preset_names_is_trained_and_resumed(tmp_path: Path) -> None:
    config, settings = tiny_config(memories=("gs5", "none", "s5", "lstm")), tiny_settings(model="mine", steps=2)
    fit(toys(), None, tmp_path, settings, config)
    assert load_detector(tmp_path / "final.safetensors").config.backbone.memories == ("gs5", "none", "s5", "lstm")
    with pytest.raises(InputError, match=r"config\.backbone\.memories"):
        fit(toys(), None, tmp_path, settings, tiny_config())


def test_weights_with_nan_never_start(tmp_path: Path, weights: str) -> None:
    detector = load_detector(weights)
    with torch.no_grad():
        detector.neck.reduce_coarse.conv.weight[0] = float("nan")
    save_detector(detector, tmp_path / "bad.safetensors")
    with pytest.raises(InputError, match="NaN"):
        fit(toys(), None, tmp_path / "out", tiny_settings(model=str(tmp_path / "bad.safetensors")))


def test_boxes_that_the_rules_leave_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The reasons of all recordings are added up; a data set without boxes isn't trained on."""

    @dataclass(frozen=True)
    class Ruled(Toy):
        truth: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(labels=[1, 2], dropped={"too small": 3, "too wide": 0}))

    data = Dataset("toys", "train", ("bright", "dark"), [Ruled(0), Ruled(1)], notes=("one.dat has no labels",))
    warn_of_dropped_labels(data)
    assert [record.getMessage() for record in caplog.records] == [
        "toys, train: one.dat has no labels",
        "toys, train: of 10 boxes the rules leave out 6 too small",
    ]
    with pytest.raises(InputError, match="the rules leave no box"):
        warn_of_dropped_labels(replace(data, recordings=[Ruled(0, truth=SimpleNamespace(labels=[], dropped={"too small": 3}))]))
