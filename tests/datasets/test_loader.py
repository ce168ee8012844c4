"""The loader: the same batches with any number of workers, processes and restarts; errors and Ctrl-C come out clean."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.augment import NO_AUGMENTATION
from saccade.datasets.lanes import LaneSettings
from saccade.datasets.loader import TENSORS, Batch, Loader
from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import Clock, Dataset, GroundTruth, Sampling
from saccade.events.write import write_events
from saccade.types import InputError, Labels
from tests.make.events import random_events
from tests.make.recordings import painted_dataset

LENGTH = 5
ROOT = Path(__file__).parents[2]


def batches(count: int, *, dataset=None, settings: LaneSettings | None = None, batch=4, first_step=0, **options) -> list[Batch]:
    dataset = dataset or painted_dataset(23, 31, 12, 40, 17)
    options = {"workers": 0, "multiple": 16} | options
    with Loader(dataset, Sampling(bins=2), settings or LaneSettings(), batch=batch, length=LENGTH, **options) as loader:
        return list(islice(loader.batches(first_step), count))


def assert_same(got: Batch, expected: Batch) -> None:
    for name in (*TENSORS, "ends_us"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)
    assert (got.counts, got.names, got.vanished) == (expected.counts, expected.names, expected.vanished)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers) -> None:
    settings = LaneSettings(rates_hz=(20, 40), skip=0.1)
    for got, expected in zip(batches(9, settings=settings, workers=workers), batches(9, settings=settings), strict=True):
        assert_same(got, expected)


def test_frames_of_real_events_come_out_of_a_worker(tmp_path) -> None:
    path = tmp_path / "events.dat"
    write_events(random_events(20_000, width=40, height=30, span_us=2_000_000), path)
    recordings = [EventRecording(f"{i}", path, one_box) for i in range(2)]
    settings = LaneSettings(augment=NO_AUGMENTATION, rates_hz=(20, 100))
    for batch in batches(6, dataset=Dataset("made", "train", ("car",), recordings), settings=settings, workers=1):
        for slot in range(4):
            ends_us, step = batch.ends_us[:, slot].numpy(), float(batch.dt[1, slot])
            expected = recordings[0].frames(ends_us, Sampling(rate_hz=round(20 / step), bins=2))
            np.testing.assert_array_equal(batch.frames[:, slot, :, :30, :40], expected)
            assert expected.any()


def one_box(width: int, height: int, scale: float) -> GroundTruth:
    """Every 100 ms."""
    t = np.arange(100_000, 2_000_000, 100_000)
    boxes = np.tile(np.array([[3, 3, 20, 20]], np.float32), (len(t), 1))
    return GroundTruth(Labels(t, boxes, np.zeros(len(t), np.int64), np.zeros(len(t), np.int64)), t, Clock())


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_at_a_step_goes_on_as_if_nothing_had_happened(workers) -> None:
    uninterrupted = batches(20)
    for got, expected in zip(batches(13, first_step=7, workers=workers), uninterrupted[7:], strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("kind", ["mixed", "ordered", "random"])
@pytest.mark.parametrize("shares", [(range(2), range(2, 4)), (range(1), range(1, 4)), (range(1), range(1, 2), range(2, 3), range(3, 4))])
def test_processes_share_the_lanes_of_one(kind, shares) -> None:
    settings = LaneSettings(kind=kind)
    parts = [batches(10, settings=settings, mine=mine) for mine in shares]
    for step, whole in enumerate(batches(10, settings=settings)):
        for name in ("frames", "dt", "is_first", "labelled", "ends_us"):
            axis = 0 if name == "is_first" else 1
            np.testing.assert_array_equal(np.concatenate([getattr(part[step], name) for part in parts], axis), getattr(whole, name))
        assert sum((part[step].names for part in parts), ()) == whole.names
        assert sum(len(part[step].targets) for part in parts) == len(whole.targets)


def test_iterating_again_begins_again() -> None:
    with Loader(painted_dataset(23), Sampling(bins=2), LaneSettings(), batch=2, length=LENGTH, workers=1) as loader:
        first, again = (list(islice(loader, 2)) for _ in range(2))
    assert_same(first[1], again[1])


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_comes_out_as_it_was(workers) -> None:
    dataset = painted_dataset(20, broken=True)
    with pytest.raises(InputError) as caught:
        batches(3, dataset=dataset, workers=workers)
    assert str(caught.value) == "recording 0: broken off after 3 bytes; copy it again"


def test_vanished_boxes_are_counted_and_told_once(caplog) -> None:
    dataset = painted_dataset(40, every=1, boxes=20)
    loader = Loader(dataset, Sampling(bins=2), LaneSettings(kind="random"), batch=4, length=LENGTH, workers=0)
    got = list(islice(loader, 8))
    assert loader.vanished == sum(batch.vanished for batch in got) > 0
    assert loader.boxes == sum(len(batch.boxes) for batch in got) + loader.vanished == 8 * 4 * 5 * 20
    assert caplog.text.count("left the picture by zooming") == 1


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"mine": range(3, 5)}, {"mine": range(2, 2)}, {"workers": -1}, {"first_step": -1}])
def test_wrong_numbers(wrong) -> None:
    with pytest.raises(InputError, match="loader"):
        batches(1, **wrong)


def test_recordings_of_other_sizes_share_one_canvas() -> None:
    """Or the state of a slot wouldn't fit its next recording."""
    small, large = painted_dataset(20), painted_dataset(20, width=70, height=50)
    dataset = replace(small, recordings=[*small.recordings, replace(large.recordings[0], name="large")])
    assert {tuple(batch.frames.shape[3:]) for batch in batches(20, dataset=dataset, batch=2, multiple=32)} == {(64, 96)}


def test_control_c_ends_all_processes_without_a_word_of_the_workers() -> None:
    code = """
        from saccade.datasets.lanes import LaneSettings
        from saccade.datasets.loader import Loader
        from saccade.datasets.recording import Sampling
        from tests.make.recordings import painted_dataset
        with Loader(painted_dataset(40), Sampling(bins=2), LaneSettings(), batch=2, length=5, workers=2) as loader:
            try:
                for step, batch in enumerate(loader):
                    if step == 3:
                        print("running", flush=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],  # torch warns of more workers than cores
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "running\n"
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # it would run for ever
        raise
    assert (output, errors, process.returncode) == ("interrupted\n", "", 0)
    time.sleep(0.1)
    with pytest.raises(ProcessLookupError):  # nobody of the group is left
        os.killpg(process.pid, 0)
