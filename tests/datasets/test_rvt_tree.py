"""The tree that RVT's preprocessing writes: labels as in the real one, frames as stored, one rate only."""

from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Sampling
from saccade.types import InputError
from tests.datasets.make import labels_every, records, rvt_sequence

PUBLISHED = Sampling(histogram="published")


def test_a_tree_with_real_labels(shared: Path, tmp_path: Path) -> None:
    labels = np.load(shared / "data/rvt_layout/labels_v2/labels.npz")["labels"]
    labels = labels[labels["t"] < 14_200_000]
    ends = np.arange(13_504_999, 14_200_000, 50_000)
    for name, pairs in (("one", False), ("two", True)):
        frames = rvt_sequence(tmp_path / "train" / name, labels, ends, size=(304, 240), pairs=pairs)
    dataset = open_dataset(tmp_path)
    assert (dataset.name, dataset.classes, [r.name for r in dataset.recordings]) == ("rvt", ("car", "pedestrian"), ["one", "two"])
    for one in dataset.recordings:
        assert (one.width, one.height) == (304, 240)
        np.testing.assert_array_equal(one.ends_us(PUBLISHED), ends)
        np.testing.assert_array_equal(one.frames(ends[5:9], PUBLISHED), frames[5:9])
        np.testing.assert_array_equal(one.labels.boxes[:, 0], labels["x"])
        found = [one.labels_at(int(end), 10) for end in ends]
        assert [len(boxes) for boxes in found if boxes is not None] == np.unique(labels["t"], return_counts=True)[1].tolist()
        assert found[2] is not None, "13604999 us is the end of frame 2"


def test_the_layout_without_frames_is_explained(shared: Path) -> None:
    """Windows of a number of events have no rate."""
    with pytest.raises(InputError, match="no frames with a rate"):
        open_dataset(shared / "data/rvt_layout", "all")


def test_halved_one_mpx_frames_come_with_halved_boxes(tmp_path: Path) -> None:
    labels = records([(600_000, 100, 200, 300, 400, 2, 1), (600_000, 0, 0, 15, 300, 0, 1)])
    rvt_sequence(tmp_path / "val" / "a", labels, np.arange(50_000, 700_000, 50_000), size=(640, 360))
    one = open_dataset(tmp_path, "val").recordings[0]
    assert (one.width, one.height) == (640, 360)
    assert one.labels.boxes.tolist() == [[50, 100, 200, 300]], "the other is below 20 pixels of the sensor"
    assert one.labels.classes.tolist() == [2]
    assert len(open_dataset(tmp_path, "val", halve="published").recordings) == 1
    with pytest.raises(InputError, match=r"have halved='published', but halved='events'"):
        open_dataset(tmp_path, "val", halve="events")
    assert one.truth.ignored is None, "the tree isn't said to hold all that are too small"


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        (Sampling(rate_hz=40, histogram="published"), "has 20 Hz with windows of 50 ms.*use the raw recordings"),
        (Sampling(window_us=10_000, histogram="published"), "10 ms"),
        (Sampling(bins=5, histogram="published"), "5 bins"),
        (Sampling(), "histogram='published'"),
    ],
)
def test_what_the_tree_does_not_have_is_refused(tmp_path: Path, sampling: Sampling, text: str) -> None:
    rvt_sequence(tmp_path / "train" / "a", records(labels_every(250_000, 1)), np.arange(50_000, 700_000, 50_000), size=(304, 240))
    one = open_dataset(tmp_path).recordings[0]
    with pytest.raises(InputError, match=text):
        one.ends_us(sampling)
    with pytest.raises(InputError, match="consecutive"):
        one.frames(np.array([1, 2]), PUBLISHED)


def test_published_windows_of_5_ms_every_50_ms_are_told_from_200_hz(tmp_path: Path) -> None:
    rvt_sequence(tmp_path / "train" / "a", records(labels_every(250_000, 1)), np.arange(50_000, 700_000, 50_000), size=(304, 240), dt="5")
    one = open_dataset(tmp_path).recordings[0]
    with pytest.raises(InputError, match="20 Hz with windows of 5 ms"):
        one.ends_us(Sampling(rate_hz=200, kind="disjoint", histogram="published"))
    assert len(one.ends_us(Sampling(rate_hz=20, window_us=5000, histogram="published"))) == 13


def test_damaged_trees_are_input_errors(tmp_path: Path) -> None:
    labels, ends = records(labels_every(250_000, 1)), np.arange(50_000, 700_000, 50_000)
    folder = tmp_path / "train" / "a"
    rvt_sequence(folder, labels, ends, size=(304, 240))
    rvt_sequence(tmp_path / "train" / "b", labels, ends, size=(304, 240))
    path = next(folder.rglob("*.h5"))
    whole = path.read_bytes()
    recordings = open_dataset(tmp_path, kind="rvt").recordings
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"event_representations\.h5"):
        recordings[0].ends_us(PUBLISHED)
    path.write_bytes(whole)
    np.save(path.with_name("timestamps_us.npy"), ends[:-1])
    with pytest.raises(InputError, match="13 frames for 12 times"):
        recordings[0].ends_us(PUBLISHED)
    (folder / "labels_v2" / "labels.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"labels\.npz"):
        _ = recordings[0].labels
