"""The speed of an object goes with its label from the simulator's file to the batch, and nothing needs it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.augment import Augmentation, augment_labels
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.types import InputError, Labels
from tests.datasets.make import recording, some_events

TIMES_US = np.arange(0, 1_000_001, 50_000)


def simulated(folder: Path, speed_px_s: np.ndarray | None) -> Path:
    """One box per instant, rows in disorder: speed and time must be sorted alike."""
    (folder / "train").mkdir(parents=True)
    (folder / "dataset.json").write_text(json.dumps({"format": "saccade simulated", "classes": ["car"]}))
    recording(folder / "train/0000.h5", some_events())
    n = len(TIMES_US)
    columns = {"classes": np.zeros(n, np.int64), "tracks": np.zeros(n, np.int64), "still_us": np.zeros(n, np.int64), "visible": np.ones(n)}
    if speed_px_s is not None:
        columns["speed_px_s"] = speed_px_s[::-1]
    boxes = np.tile([1.0, 2.0, 21.0, 32.0], (n, 1))
    np.savez(folder / "train/0000_labels.npz", t=TIMES_US[::-1], times_us=TIMES_US, boxes=boxes, **columns)
    return folder


def test_speed_survives_rules_and_preparation(tmp_path: Path) -> None:
    speed = np.arange(len(TIMES_US), dtype=np.float32)
    root = simulated(tmp_path / "set", speed)
    raw, halved = open_dataset(root), open_dataset(root, halve="events")
    np.testing.assert_array_equal(raw.recordings[0].labels.speed_px_s, speed)
    np.testing.assert_array_equal(halved.recordings[0].labels.speed_px_s, speed / 2)  # in pixels of the frames, as the boxes
    found = raw.recordings[0].labels_at(150_000, 10)
    assert found is not None
    assert found.speed_px_s is not None
    assert found.speed_px_s.tolist() == [3]
    for what in ("frames", "events"):
        prepare(raw, tmp_path / what, what=what, processes=1)
        np.testing.assert_array_equal(open_dataset(tmp_path / what).recordings[0].labels.speed_px_s, speed)


def test_files_without_speed_open_as_before(tmp_path: Path) -> None:
    raw = open_dataset(simulated(tmp_path / "set", None))
    assert raw.recordings[0].labels.speed_px_s is None
    prepare(raw, tmp_path / "out", what="events", processes=1)
    assert open_dataset(tmp_path / "out").recordings[0].labels.speed_px_s is None


def test_a_speed_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="columns of one length"):
        _ = open_dataset(simulated(tmp_path / "set", np.zeros(3, np.float32))).recordings[0].labels


def test_zoom_changes_speed_and_flip_does_not() -> None:
    boxes = np.array([[10, 10, 30, 30], [80, 80, 90, 90]], np.float32)
    labels = Labels(np.zeros(2, np.int64), boxes, np.zeros(2, np.int64), np.arange(2), speed_px_s=np.array([10, 20], np.float32))
    zoomed, vanished = augment_labels(labels, Augmentation(zoom=1.5), 100, 100)
    assert (vanished, zoomed.speed_px_s.tolist()) == (1, [15])
    assert augment_labels(labels, Augmentation(flip=True), 100, 100)[0].speed_px_s.tolist() == [10, 20]
    assert augment_labels(replace(labels, speed_px_s=None), Augmentation(zoom=1.5), 100, 100)[0].speed_px_s is None
