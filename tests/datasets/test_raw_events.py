"""Gen1, 1 Mpx, eTraM and DSEC straight from their events: frames are those of `saccade.frames`, at any rate, from any place."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Sampling
from saccade.datasets.rules import DSEC_CLASSES, ETRAM_CLASSES, GEN1_IGNORED, LabelRules
from saccade.types import Events, InputError
from tests.datasets.make import DSEC_ORDER, ETRAM_ORDER, gen1_folder, labels_every, recording, records, some_events
from tests.make.events import random_events
from tests.make.prophesee import write_dat

SAMPLINGS = [
    Sampling(),
    Sampling(rate_hz=200, bins=5),
    Sampling(rate_hz=60, bins=2),
    Sampling(rate_hz=40, kind="disjoint", bins=4),
    Sampling(histogram="published"),
]


def gen1_clip(shared: Path, folder: Path) -> Path:
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "clip_td.dat").symlink_to(shared / "data/gen1/clip_td.dat")
    (folder / "train" / "clip_bbox.npy").symlink_to(shared / "data/gen1/clip_bbox_hand.npy")
    return folder


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_frames_of_a_real_clip_are_those_of_the_whole_recording(shared: Path, tmp_path: Path, sampling: Sampling) -> None:
    dataset = open_dataset(gen1_clip(shared, tmp_path))
    clip = dataset.recordings[0]
    assert (dataset.name, dataset.classes, clip.name, clip.width, clip.height) == ("gen1", ("car", "pedestrian"), "clip", 304, 240)
    ends = clip.ends_us(sampling)
    with saccade.open_events(shared / "data/gen1/clip_td.dat") as reader:
        whole = list(
            saccade.frames(
                reader, sampling.rate_hz, sampling.kind, sampling.window_us, sampling.bins, mode=sampling.histogram, origin_us=20_749_999
            )
        )
    assert ends.tolist() == [frame.end_us for frame in whole]
    for first in (0, 1, len(ends) // 2, len(ends) - 3):
        got = clip.frames(ends[first : first + 3], sampling)
        np.testing.assert_array_equal(got, np.stack([frame.data for frame in whole[first : first + 3]]))
    found = [labels for end in ends if (labels := clip.labels_at(int(end), 1)) is not None]
    assert len(found) == len(clip.labels) == 5, "labels at 4 Hz lie on ends of 20, 40, 60 and 200 Hz"


@pytest.mark.parametrize("sampling", [Sampling(rate_hz=200, bins=5), Sampling(rate_hz=200, kind="disjoint", bins=5)], ids=str)
def test_silence_before_between_and_after_the_events_gives_the_right_frames(tmp_path: Path, sampling: Sampling) -> None:
    """A window after the last event of the piece still shows the events of its last 50 ms."""
    t = np.concatenate((np.arange(1_000_000, 1_010_000, 100), np.arange(1_200_000, 1_201_000, 10)))
    n = len(t)
    events = Events(t, np.full(n, 5, np.uint16), np.full(n, 6, np.uint16), np.ones(n, np.bool_), 304, 240)
    (tmp_path / "train").mkdir()
    write_dat(tmp_path / "train" / "a_td.dat", events)
    np.save(tmp_path / "train" / "a_bbox.npy", records(labels_every(250_000, 3, first_us=1_000_000)))
    one = open_dataset(tmp_path).recordings[0]
    ends = one.ends_us(sampling)
    ends = np.concatenate((ends[0] - np.arange(20, 0, -1) * 5000, ends, ends[-1] + np.arange(1, 30) * 5000))
    frames = one.frames(ends, sampling)
    for end, frame in zip(ends.tolist(), frames, strict=True):
        start = end - (50_000 if sampling.kind == "sliding" else 5000)
        window = events[(t >= start) & (t < end)]
        expected = saccade.representation.histogram.stacked_histogram(
            saccade.Window(window.t, window.x, window.y, window.p, 304, 240, start, end), sampling.bins
        )
        np.testing.assert_array_equal(frame, expected)
    for i in range(0, len(ends), 7):
        np.testing.assert_array_equal(one.frames(ends[i : i + 4], sampling), frames[i : i + 4])


def test_ends_that_are_not_of_the_grid_are_refused(tmp_path: Path) -> None:
    one = open_dataset(gen1_folder(tmp_path)).recordings[0]
    ends = one.ends_us(Sampling())
    for wrong in (ends[:3] + 1, ends[:6:2]):
        with pytest.raises(InputError, match="consecutive"):
            one.frames(wrong, Sampling())
    assert one.frames(ends[:0], Sampling()).shape == (0, 20, 240, 304)


def test_one_mpx_is_halved_with_its_boxes(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    events = random_events(3000, width=1280, height=720, span_us=1_500_000)
    write_dat(tmp_path / "train" / "a_td.dat", events)
    rows = [(i * 100_000, 100, 200, 300, 400, i % 7, 1) for i in range(14)]
    np.save(tmp_path / "train" / "a_bbox.npy", records(rows))
    dataset = open_dataset(tmp_path)
    one, odd = dataset.recordings[0], open_dataset(tmp_path, halve="published").recordings[0]
    assert (dataset.name, one.width, one.height) == ("1mpx", 640, 360)
    assert one.labels.classes.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.unique(one.labels.boxes, axis=0).tolist() == [[50, 100, 200, 300]]
    ends, clip = one.ends_us(Sampling()), one.frames(one.ends_us(Sampling()), Sampling())
    assert int(clip.sum()) == len(events)
    kept = (events.x % 2 == 1) & (events.y % 2 == 1)
    assert int(odd.frames(ends, Sampling()).sum()) == kept.sum()
    assert open_dataset(tmp_path, halve="no").recordings[0].width == 1280


def test_etram_and_dsec_orders(tmp_path: Path) -> None:
    big, rows = some_events(1280, 720, span_us=2_000_000), labels_every(33_333, 20)
    recording(tmp_path / "etram/train/day_td.h5", big)
    np.save(tmp_path / "etram/train/day_bbox.npy", records(rows, ETRAM_ORDER))
    etram = open_dataset(tmp_path / "etram")
    assert (etram.name, etram.classes, etram.recordings[0].width) == ("etram", ETRAM_CLASSES, 640)
    assert etram.recordings[0].labels.t.tolist() == [row[0] for row in rows[::3]]
    start_us = 51_648_000_000
    recording(tmp_path / "dsec/train/one/events/left/events.h5", some_events(640, 480, start_us=start_us, span_us=2_000_000))
    (tmp_path / "dsec/train/one/object_detections/left").mkdir(parents=True)
    rows = labels_every(50_000, 20, first_us=start_us + 100_000)
    np.save(tmp_path / "dsec/train/one/object_detections/left/tracks.npy", records(rows, DSEC_ORDER))
    recording(tmp_path / "dsec/train/flat/events.h5", some_events(640, 480, start_us=start_us))
    np.save(tmp_path / "dsec/train/flat/tracks.npy", records(rows, DSEC_ORDER))
    dsec = open_dataset(tmp_path / "dsec")
    assert (dsec.name, dsec.classes) == ("dsec", DSEC_CLASSES)
    assert [r.name for r in dsec.recordings] == ["flat", "one"]
    one = dsec.recordings[1]
    assert one.labels.boxes[3].tolist() == [23, 30, 83, 80]
    assert sum(one.labels_at(int(end), 1) is not None for end in one.ends_us(Sampling())) == 20


def test_what_has_no_partner_and_what_the_field_leaves_out_is_noted(tmp_path: Path) -> None:
    gen1_folder(tmp_path, ("a", "b", "c", GEN1_IGNORED[0]))
    (tmp_path / "train" / "b_td.dat").unlink()
    (tmp_path / "train" / "c_bbox.npy").unlink()
    dataset = open_dataset(tmp_path)
    assert [r.name for r in dataset.recordings] == ["a"]
    assert len(dataset.missing) == 2
    assert "b_bbox.npy: has no recording" in dataset.missing[0]
    assert "c_td.dat: has no labels" in dataset.missing[1]
    assert "1 recordings left out" in dataset.notes[0]


def test_own_rules_replace_the_official_ones(tmp_path: Path) -> None:
    root = gen1_folder(tmp_path)
    kept = open_dataset(root, rules=LabelRules(classes=("pedestrian",), ids={1: 0})).recordings[0].labels
    assert len(kept) == 2
    assert set(kept.classes.tolist()) == {0}


def test_splits(tmp_path: Path) -> None:
    root = gen1_folder(gen1_folder(tmp_path / "d", ("a",)), ("b", "c"), split="val")
    names = {split: [r.name for r in open_dataset(root, split).recordings] for split in ("train", "val", "all")}
    assert names == {"train": ["a"], "val": ["b", "c"], "all": ["train/a", "val/b", "val/c"]}
    assert [r.name for r in open_dataset(root / "val", "val").recordings] == ["b", "c"]
    for path, split, text in ((root, "test", "only train, val"), (root / "val", "train", "folder above"), (root, "dev", "unknown split")):
        with pytest.raises(InputError, match=text):
            open_dataset(path, split)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no data set we know"):
        open_dataset(tmp_path / "empty", "all")
    with pytest.raises(InputError, match="no such folder"):
        open_dataset(tmp_path / "nothing")


def _sum(one, sampling: Sampling) -> int:
    return int(one.frames(one.ends_us(sampling)[:5], sampling).sum()) + len(one.labels)


def test_recordings_work_in_another_process(tmp_path: Path) -> None:
    one = open_dataset(gen1_folder(tmp_path)).recordings[0]
    here = _sum(one, Sampling())
    assert len(pickle.dumps(one)) < 2000, "what was read isn't sent along"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_sum, one, Sampling()).result() == here


def test_broken_recordings_are_input_errors(tmp_path: Path) -> None:
    root = gen1_folder(tmp_path)
    (root / "train" / "b_td.dat").write_bytes(b"% no events")
    (root / "train" / "a_bbox.npy").write_bytes(b"nothing")
    first, second = open_dataset(root, kind="gen1").recordings
    with pytest.raises(InputError, match="a_bbox"):
        _ = first.labels
    with pytest.raises(InputError, match="b_td"):
        second.ends_us(Sampling())
    with pytest.raises(InputError, match="304 x 240, 1mpx has"):
        open_dataset(root, kind="1mpx")
