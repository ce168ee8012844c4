"""A prepared data set is the data set: equal frames and labels, restartable, and only for the settings it was made with."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from saccade.commands import data
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.datasets.recording import Dataset, Sampling
from saccade.types import InputError
from tests.datasets.make import gen1_folder, labels_every, recording, records, rvt_sequence, some_events

SMALL = Sampling(bins=2)


def assert_same(prepared: Dataset, raw: Dataset, sampling: Sampling) -> None:
    assert (prepared.name, prepared.split, prepared.classes) == (raw.name, raw.split, raw.classes)
    assert [r.name for r in prepared.recordings] == [r.name for r in raw.recordings]
    for got, expected in zip(prepared.recordings, raw.recordings, strict=True):
        ends = expected.ends_us(sampling)
        np.testing.assert_array_equal(got.ends_us(sampling), ends)
        np.testing.assert_array_equal(got.frames(ends, sampling), expected.frames(ends, sampling))
        np.testing.assert_array_equal(got.frames(ends[3:5], sampling), expected.frames(ends[3:5], sampling))
        assert (got.width, got.height) == (expected.width, expected.height)
        for column in ("t", "boxes", "classes", "tracks", "still_us", "visible", "speed_px_s"):
            np.testing.assert_array_equal(getattr(got.labels, column), getattr(expected.labels, column))
        for column in ("t", "boxes", "classes"):
            np.testing.assert_array_equal(getattr(got.truth.ignored, column), getattr(expected.truth.ignored, column))
        for end in ends.tolist():
            a, b = got.labels_at(end, 1000), expected.labels_at(end, 1000)
            assert (a is None) == (b is None)
            assert a is None or b is None or len(a) == len(b)


@pytest.mark.parametrize("what", ["frames", "events"])
def test_prepared_is_unprepared(tmp_path: Path, what: str) -> None:
    gen1_folder(tmp_path / "raw")
    np.save(tmp_path / "raw/train/b_bbox.npy", records([*labels_every(250_000, 5), (700_000, 5, 5, 9, 60, 1, 8)]))
    raw = open_dataset(tmp_path / "raw")
    assert raw.recordings[1].truth.ignored.boxes.tolist() == [[5, 5, 14, 65]], "too small"
    done: list[str] = []
    assert prepare(raw, tmp_path / "out", SMALL, what=what, processes=1, progress=done.append) == []
    assert done == ["a", "b"]
    assert_same(open_dataset(tmp_path / "out"), raw, SMALL)
    if what == "events":
        assert_same(open_dataset(tmp_path / "out"), raw, Sampling(rate_hz=60, kind="disjoint", bins=3))


def test_caches_of_older_versions_don_t_know_what_was_left_out(tmp_path: Path) -> None:
    prepare(open_dataset(gen1_folder(tmp_path / "raw", ("a",))), tmp_path / "out", SMALL, processes=1)
    path = tmp_path / "out/train/a.npz"
    with np.load(path) as arrays:
        older = {name: arrays[name] for name in arrays.files if not name.startswith("ignored")}
    np.savez(path, **older)
    (one,) = open_dataset(tmp_path / "out").recordings
    assert one.truth.ignored is None
    assert len(one.labels) == 5


def test_halved_events_stay_halved(tmp_path: Path) -> None:
    recording(tmp_path / "raw/train/day_td.h5", some_events(1280, 720, span_us=700_000))
    np.save(tmp_path / "raw/train/day_bbox.npy", records(labels_every(33_333, 3)))
    raw = open_dataset(tmp_path / "raw", halve="published")
    prepare(raw, tmp_path / "out", what="events", processes=1)
    assert_same(open_dataset(tmp_path / "out"), raw, SMALL)
    data.prepare(tmp_path / "raw", tmp_path / "frames", bins=2, halved="published", processes=1)
    assert_same(open_dataset(tmp_path / "frames", halve="published"), raw, SMALL)
    for folder in ("out", "frames"):
        with pytest.raises(InputError, match="have halved='published', but halved='events'"):
            open_dataset(tmp_path / folder, halve="events")


def test_several_processes_and_names_in_folders(tmp_path: Path) -> None:
    root = gen1_folder(gen1_folder(tmp_path / "raw", ("a",)), ("b",), split="val")
    raw = open_dataset(root, "all")
    prepare(raw, tmp_path / "out", SMALL, processes=2)
    assert_same(open_dataset(tmp_path / "out", "all"), raw, SMALL)


def test_an_interrupted_preparation_goes_on(tmp_path: Path) -> None:
    raw = open_dataset(gen1_folder(tmp_path / "raw", ("a", "b", "c")))

    def stop(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(raw, tmp_path / "out", SMALL, processes=1, progress=stop)
    half = open_dataset(tmp_path / "out")
    assert [r.name for r in half.recordings] == ["a"]
    assert "2 recordings aren't prepared yet" in half.notes[0]
    first = (tmp_path / "out/train/a.h5").stat().st_mtime_ns
    prepare(raw, tmp_path / "out", SMALL, processes=1)
    assert (tmp_path / "out/train/a.h5").stat().st_mtime_ns == first
    assert_same(open_dataset(tmp_path / "out"), raw, SMALL)
    assert not list((tmp_path / "out").rglob("*.part*"))


def test_other_settings_are_refused(tmp_path: Path) -> None:
    raw = open_dataset(gen1_folder(tmp_path / "raw"))
    prepare(raw, tmp_path / "out", SMALL, processes=1)
    with pytest.raises(InputError, match=r"other settings.*sampling"):
        prepare(raw, tmp_path / "out", Sampling(rate_hz=40, bins=2), processes=1)
    with pytest.raises(InputError, match="other settings"):
        prepare(raw, tmp_path / "out", SMALL, what="events", processes=1)
    one = open_dataset(tmp_path / "out").recordings[0]
    with pytest.raises(InputError, match="was prepared with"):
        one.ends_us(Sampling(rate_hz=40, bins=2))
    with pytest.raises(InputError, match="wasn't written by prepare"):
        prepare(raw, tmp_path / "raw", SMALL, processes=1)
    with pytest.raises(InputError, match="are fixed"):
        open_dataset(tmp_path / "out", kind="gen1")
    with pytest.raises(InputError, match=r"have halved='no', but halved='events' is asked for"):
        open_dataset(tmp_path / "out", halve="events")
    assert len(open_dataset(tmp_path / "out", halve="no").recordings) == 2
    with pytest.raises(InputError, match="processes=0"):
        prepare(raw, tmp_path / "out", SMALL, processes=0)


def test_broken_recordings_are_left_out_and_named(tmp_path: Path) -> None:
    root = gen1_folder(tmp_path / "raw")
    (root / "train/b_bbox.npy").write_bytes(b"nothing")
    problems = prepare(open_dataset(root), tmp_path / "out", SMALL, processes=1)
    assert len(problems) == 1
    assert "b_bbox.npy" in problems[0]
    assert [r.name for r in open_dataset(tmp_path / "out").recordings] == ["a"]


def test_damaged_caches_are_input_errors(tmp_path: Path) -> None:
    prepare(open_dataset(gen1_folder(tmp_path / "raw")), tmp_path / "out", SMALL, processes=1)
    first, second = open_dataset(tmp_path / "out").recordings
    path = tmp_path / "out/train/a.h5"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"a\.h5"):
        first.frames(first.ends_us(SMALL)[:2], SMALL)
    path = tmp_path / "out/train/b.npz"
    np.savez(path, t=np.zeros(1))
    with pytest.raises(InputError, match=r"b\.npz"):
        _ = second.labels
    with pytest.raises(InputError, match=r"b\.npz"):
        second.ends_us(SMALL)
    (tmp_path / "out/train/prepared.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(InputError, match=r"prepared\.json"):
        open_dataset(tmp_path / "out")


def test_frames_of_an_rvt_tree_have_no_events_to_prepare(tmp_path: Path) -> None:
    rvt_sequence(tmp_path / "raw/train/a", records(labels_every(250_000, 1)), np.arange(50_000, 700_000, 50_000), size=(304, 240))
    problems = prepare(open_dataset(tmp_path / "raw"), tmp_path / "out", what="events", processes=1)
    assert "prepare the raw recordings" in problems[0]


def test_frames_lie_in_the_file_in_the_order_in_which_they_are_read(tmp_path: Path) -> None:
    """Every clip is one run of bytes: a disk, or an object store, reads ahead."""
    recording(tmp_path / "raw/train/a.h5", some_events(span_us=8_000_000))
    (tmp_path / "raw/train/a.csv").write_text("t_us,x,y,w,h,class\n300000,10,8,20,30,car\n")
    prepare(open_dataset(tmp_path / "raw"), tmp_path / "out", SMALL, processes=1)
    with h5py.File(tmp_path / "out/train/a.h5") as file:
        chunks = [file["data"].id.get_chunk_info(i) for i in range(len(file["data"]))]
    assert len(chunks) > 64  # more than are written at once
    assert [chunk.chunk_offset[0] for chunk in chunks] == list(range(len(chunks)))
    ends = [chunk.byte_offset + chunk.size for chunk in chunks]
    gaps = [later.byte_offset - end for later, end in zip(chunks[1:], ends, strict=False)]
    assert min(gaps) >= 0
    assert sum(gaps) < 0.05 * (ends[-1] - chunks[0].byte_offset) + 20_000  # HDF5's own index lies between them
