"""`saccade check` counts what is there and names what is wrong; the pictures show the boxes."""

from pathlib import Path

import numpy as np
import pytest

from saccade.commands import data
from saccade.datasets.check import check_dataset, shared_recordings
from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Sampling
from saccade.simulate.dataset import DatasetConfig, write_dataset
from saccade.types import InputError
from tests.datasets.make import gen1_folder, labels_every, recording, records, rvt_sequence, some_events
from tests.make.events import random_events
from tests.make.prophesee import write_dat


def test_counts_of_a_sound_data_set(tmp_path: Path) -> None:
    report = check_dataset(open_dataset(gen1_folder(tmp_path)), deep=True)
    assert report.problems == []
    first = report.recordings[0]
    assert (first.frames, first.instants, first.boxes, first.outside, first.unmatched, first.duplicates) == (40, 5, (3, 2), 0, 0, 0)
    text = report.text()
    for line in ("gen1, split train", "2, 0.00 h, 0 broken", "80 at 20 Hz", "10 instants, 0 of them get no frame", "6 car, 4 pedestrian"):
        assert line in text


def test_everything_wrong_is_named(tmp_path: Path) -> None:
    root = gen1_folder(tmp_path, ("fine", "cut", "shifted", "double", "unlabelled", "unordered"))
    folder = root / "train"
    (folder / "cut_td.dat").write_bytes(b"% cut off")
    np.save(folder / "shifted_bbox.npy", records(labels_every(250_000, 5, first_us=1_600_000)))
    np.save(folder / "double_bbox.npy", records(labels_every(250_000, 3) * 2))
    np.save(folder / "unlabelled_bbox.npy", records([]))
    events = random_events(1000, span_us=2_000_000)
    write_dat(folder / "unordered_td.dat", events[::-1])
    (folder / "lonely_bbox.npy").write_bytes((folder / "fine_bbox.npy").read_bytes())
    report = check_dataset(open_dataset(root), deep=True)
    problems = "\n".join(report.problems)
    for name, text in (
        ("lonely", "no recording beside it"), ("cut", "cut_td.dat"), ("shifted", "3 labelled instants lie outside"),
        ("double", "3 boxes repeat"), ("unlabelled", "no label that counts"), ("unordered", "backwards"),
    ):  # fmt: skip
        assert any(name in line and text in line for line in report.problems), f"{name}: {problems}"
    assert not any("fine:" in line for line in report.problems)
    assert "problem: " in report.text()


def test_instants_that_no_frame_gets_are_counted(tmp_path: Path) -> None:
    """60 labels a second at 20 frames a second: one of three is used."""
    root = gen1_folder(tmp_path, ("a",))
    np.save(root / "train/a_bbox.npy", records(labels_every(16_667, 58)))
    report = check_dataset(open_dataset(root), Sampling())
    assert report.recordings[0].instants == 58
    assert report.recordings[0].unmatched == 38
    assert "58 instants, 38 of them get no frame" in report.text()


def test_labels_after_the_last_event_are_no_problem_unless_they_are_many(tmp_path: Path) -> None:
    """A quiet recording of 0.4 s whose last event came at 0.35 s was called broken: nothing is wrong with it."""
    root = gen1_folder(tmp_path, ("a",))  # 2 s of events
    np.save(root / "train/a_bbox.npy", records(labels_every(100_000, 17)))
    report = check_dataset(open_dataset(root), Sampling())
    assert report.recordings[0].outside > 0
    assert not report.problems


def test_an_empty_street_is_no_problem(tmp_path: Path) -> None:
    """Somebody looked, and nothing was there."""
    write_dataset(tmp_path, DatasetConfig(recordings=1, seconds=0.2, width=48, height=40), processes=1)
    path = next(tmp_path.glob("*/*_labels.npz"))
    with np.load(path) as arrays:
        columns = {name: arrays[name] if name == "times_us" else arrays[name][:0] for name in arrays}
    np.savez(path, **columns)
    report = check_dataset(open_dataset(tmp_path, "all"))
    assert report.recordings[0].instants == 41
    assert report.problems == []


def test_a_recording_in_two_splits_is_found_by_content(tmp_path: Path) -> None:
    root = gen1_folder(gen1_folder(tmp_path, ("a", "b")), ("c",), split="val")
    assert shared_recordings([open_dataset(root, split) for split in ("train", "val")]) == [
        "val/c and train/a are the same recording in two splits"
    ]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    root = gen1_folder(gen1_folder(tmp_path / "d", ("a", "b")), ("x", "y", "z"), split="val")
    (root / "val/z_td.dat").write_bytes(b"")
    with pytest.raises(SystemExit, match="1"):
        data.check(root, out=tmp_path / "sheet.png")
    text = capsys.readouterr().out
    assert "split train" in text
    assert "split val" in text
    assert "1 broken" in text
    assert "3 problems" in text, "z is empty; x and y are a and b"
    with pytest.raises(SystemExit, match="1"):
        data.check(root, split="val")
    assert capsys.readouterr().out.endswith("\n1 problem\n")
    for split in ("train", "val"):
        assert (tmp_path / f"sheet_{split}.png").read_bytes().startswith(b"\x89PNG")
    assert len(data.samples(open_dataset(root), Sampling())) == 6
    with pytest.raises(InputError, match=r"\.png"):
        data.check(root, out=tmp_path / "sheet.gif")


def test_one_class_in_two_spellings_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name, kind in (("train/a", "car"), ("train/b", "Car"), ("val/c", "bus")):
        recording(tmp_path / f"{name}.h5", some_events(seed=ord(name[-1])))
        (tmp_path / f"{name}.csv").write_text(f"t_us,x,y,w,h,class\n100000,4,4,20,20,{kind}\n")
    with pytest.raises(SystemExit, match="1"):
        data.check(tmp_path)
    assert "problem: classes 'Car', 'car' are probably one\n1 problem\n" in capsys.readouterr().out


def test_data_sets_of_stored_frames_are_checked_at_their_own_rate(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ends = np.arange(50_000, 1_300_000, 50_000)
    rvt_sequence(tmp_path / "rvt/train/a", records(labels_every(250_000, 3)), ends, size=(304, 240))
    data.check(tmp_path / "rvt")
    data.prepare(gen1_folder(tmp_path / "raw"), tmp_path / "out", rate_hz=40, bins=2, processes=1)
    data.check(tmp_path / "out")
    text = capsys.readouterr().out
    assert "25 at 20 Hz" in text
    assert "160 at 40 Hz" in text
    assert text.count("no problems") == 2


def test_prepare_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    root = gen1_folder(gen1_folder(tmp_path / "d", ("a",)), ("x",), split="val")
    data.prepare(root, tmp_path / "out", bins=2, processes=1)
    assert len(open_dataset(tmp_path / "out", "val").recordings) == 1
    (root / "val/y_bbox.npy").write_bytes(b"")
    (root / "val/y_td.dat").write_bytes((root / "val/x_td.dat").read_bytes())
    with pytest.raises(InputError, match="1 recordings couldn't be prepared"):
        data.prepare(root, tmp_path / "other", bins=2, processes=1)
    assert "left out: " in capsys.readouterr().out
