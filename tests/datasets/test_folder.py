"""Recordings of one's own with csv or COCO labels, and simulated ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Dataset, Sampling
from saccade.datasets.rules import LabelRules
from saccade.datasets.splits import split_of
from saccade.types import InputError, Labels
from tests.datasets.make import recording, some_events

BOXES = [(100_000, 5.0, 6.0, 20.5, 10.0, "car", 3), (100_000, 1.0, 1.0, 8.0, 8.0, "bike", 4), (300_000, 6.0, 6.0, 20.0, 10.0, "car", 3)]


def csv_of(columns: str, rows: list) -> str:
    names = columns.replace(";", ",").replace("\t", ",").split(",")
    separator = next((mark for mark in ";\t" if mark in columns), ",")
    lines = [columns]
    for t, x, y, w, h, kind, track in rows:
        corners = {"left": x, "top": y, "right": x + w, "bottom": y + h, "x1": x, "y1": y, "x2": x + w, "y2": y + h}
        values = {"t_us": t, "time_s": t / 1e6, "t_ms": t / 1e3, "x": x, "y": y, "w": w, "h": h, **corners}
        values |= {"class": kind, "label": kind, "track_id": track, "other": "z"}
        lines.append(separator.join(str(values[name]) for name in names))
    return "\n".join(lines) + "\n"


def own(folder: Path, suffix: str = ".h5", text: str | None = None, name: str = "train/drive") -> Path:
    recording(folder / f"{name}{suffix}", some_events())
    (folder / f"{name}.csv").write_text(text or csv_of("t_us,x,y,w,h,class,track_id", BOXES))
    return folder


def assert_labels(labels: Labels, classes: tuple[str, ...], tracked: bool = True) -> None:
    assert labels.t.tolist() == [row[0] for row in BOXES]
    np.testing.assert_allclose(labels.boxes, [(x, y, x + w, y + h) for _, x, y, w, h, _, _ in BOXES])
    assert [classes[i] for i in labels.classes] == [row[5] for row in BOXES]
    assert labels.tracks.tolist() == [row[6] if tracked else -1 for row in BOXES]


@pytest.mark.parametrize(
    "columns",
    [
        "t_us,x,y,w,h,class,track_id",
        "time_s;left;top;right;bottom;label;track_id",
        "other\tt_ms\tx1\ty1\tx2\ty2\tclass",
        "class,x,y,w,h,t_us",
    ],
)
def test_csv_labels_in_any_columns(tmp_path: Path, columns: str) -> None:
    dataset = open_dataset(own(tmp_path, text=csv_of(columns, BOXES)))
    assert (dataset.name, dataset.classes, dataset.recordings[0].name) == ("folder", ("bike", "car"), "drive")
    assert_labels(dataset.recordings[0].labels, dataset.classes, "track_id" in columns)
    one = dataset.recordings[0]
    assert (one.width, one.height) == (64, 48)
    assert int(one.frames(one.ends_us(Sampling()), Sampling()).sum()) == 3000


@pytest.mark.parametrize("suffix", [".dat", ".npz"])
def test_recordings_in_any_format(tmp_path: Path, suffix: str) -> None:
    one = open_dataset(own(tmp_path, suffix)).recordings[0]
    assert len(one.ends_us(Sampling())) == 20
    assert_labels(one.labels, ("bike", "car"))


def test_a_recording_that_is_a_csv_itself(tmp_path: Path) -> None:
    recording(tmp_path / "train/drive.csv", some_events())
    (tmp_path / "train/drive.labels.csv").write_text(csv_of("t_us,x,y,w,h,class,track_id", BOXES))
    one = open_dataset(tmp_path).recordings[0]
    assert (one.name, one.path.name) == ("drive", "drive.csv")
    assert_labels(one.labels, ("bike", "car"))


def test_a_line_without_a_box_is_an_instant_without_objects(tmp_path: Path) -> None:
    one = open_dataset(own(tmp_path, text=csv_of("t_us,x,y,w,h,class,track_id", BOXES) + "500000,,,,,,\n")).recordings[0]
    empty = one.labels_at(500_000, 10)
    assert empty is not None
    assert len(empty) == 0
    assert one.labels_at(400_000, 10) is None


def test_times_since_the_first_event(tmp_path: Path) -> None:
    """Cameras that stamp the time of day: labels are often made relative to the first event."""
    events = some_events(start_us=1_589_163_147_368_868)
    recording(tmp_path / "a/train/drive.h5", events)
    (tmp_path / "a/train/drive.csv").write_text("elapsed_s,x,y,w,h,class\n0.1,1,1,5,5,car\n")
    images = [{"id": 1, "file_name": "drive.h5", "elapsed_us": 100_000}]
    annotations = [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5]}]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "car"}]}
    recording(tmp_path / "b/train/drive.h5", events)
    (tmp_path / "b/train/labels.json").write_text(json.dumps(content))
    for root in ("a", "b"):
        assert open_dataset(tmp_path / root).recordings[0].labels.t.tolist() == [int(events.t[0]) + 100_000]


def test_classes_are_the_same_in_every_split(tmp_path: Path) -> None:
    own(tmp_path)
    own(tmp_path, text="t_us,x,y,w,h,class\n1000,1,1,5,5,tram\n", name="val/other")
    assert open_dataset(tmp_path, "train").classes == open_dataset(tmp_path, "val").classes == ("bike", "car", "tram")
    (tmp_path / "classes.txt").write_text("tram\ncar\nbike\n")
    dataset = open_dataset(tmp_path, "val")
    assert dataset.classes == ("tram", "car", "bike")
    assert dataset.recordings[0].labels.classes.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,x,y,w,h,class\n1,1,1,1,1,car\n", "time with a unit"),
        ("t_us,x,y,w,class\n1,1,1,1,car\n", "no column for the box"),
        ("t_us,x,y,w,h,class\n1,1,1,one,1,car\n", "line 2"),
        ("t_us,x,y,w,h,class\n1,1,1,1,1,car\n2,3\n", "line 3"),
        ("t_us,x,y,w,h,class\n1,1,1,-1,1,car\n", "negative"),
        ("t_us,x,y,w,h,class\n1,1,1,nan,1,car\n", "finite"),
        ("t_us,x1,y1,x2,y2,class\n1,9,9,1,12,car\n", "negative"),
    ],
)
def test_wrong_csv_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"drive\.csv.*{message}"):
        _ = open_dataset(own(tmp_path, text=text)).recordings[0].labels


def coco(folder: Path, **changes: object) -> Path:
    recording(folder / "train/drive.h5", some_events())
    recording(folder / "val/other.h5", some_events(seed=1))
    content = {
        "images": [
            {"id": 10, "file_name": "train/drive.h5", "time_us": 100_000},
            {"id": 11, "file_name": "train/drive.h5", "time_s": 0.3},
            {"id": 12, "file_name": "train/drive.h5", "time_us": 500_000},
            {"id": 13, "file_name": "val/other.h5", "time_us": 500_000},
        ],
        "categories": [{"id": 7, "name": "car"}, {"id": 2, "name": "bike"}],
        "annotations": [
            {"image_id": 10 if t == 100_000 else 11, "category_id": 7 if kind == "car" else 2, "bbox": [x, y, w, h], "track_id": track}
            for t, x, y, w, h, kind, track in BOXES
        ],
    }
    (folder / "labels.json").write_text(json.dumps(content | changes))
    return folder


def test_coco_labels(tmp_path: Path) -> None:
    dataset = open_dataset(coco(tmp_path))
    assert (dataset.classes, [r.name for r in dataset.recordings]) == (("bike", "car"), ["drive"])
    one = dataset.recordings[0]
    assert_labels(one.labels, dataset.classes)
    empty = one.labels_at(500_000, 10)
    assert empty is not None
    assert len(empty) == 0
    assert [r.name for r in open_dataset(tmp_path, "val").recordings] == ["other"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": [{"id": 1, "file_name": "train/drive.h5"}], "annotations": []}, "has no time"),
        ({"images": [{"id": 1, "file_name": "train/drive.h5", "t_us": 1}] * 2, "annotations": []}, "same id"),
        ({"annotations": [{"image_id": 99}]}, "99"),
        ({"annotations": [{"image_id": 10, "category_id": 7, "bbox": [1, 2, 3]}]}, "bbox"),
        ({"annotations": [{"image_id": 10, "category_id": 1, "bbox": [1, 2, 3, 4]}]}, "category_id"),
    ],
)
def test_wrong_coco_is_refused(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=rf"labels\.json.*{message}"):
        _ = open_dataset(coco(tmp_path, **changes)).recordings[0].labels


def test_splits_by_list_and_by_hash(tmp_path: Path) -> None:
    names = [f"drive{i}" for i in range(12)]
    recording(tmp_path / "drive0.h5", some_events(count=10))
    for name in names:
        (tmp_path / f"{name}.csv").write_text(csv_of("t_us,x,y,w,h,class,track_id", BOXES))
        if name != "drive0":
            (tmp_path / f"{name}.h5").write_bytes((tmp_path / "drive0.h5").read_bytes())
    by_hash = {split: {name for name in names if split_of(name) == split} for split in ("train", "val", "test")}
    assert by_hash["train"] | by_hash["val"] | by_hash["test"] == set(names)
    assert {r.name for r in open_dataset(tmp_path).recordings} == by_hash["train"]
    assert any("hash" in note for note in open_dataset(tmp_path).notes)
    (tmp_path / "splits.json").write_text(json.dumps({"train": names[:3], "test": names[3:4]}))
    assert [r.name for r in open_dataset(tmp_path, "test").recordings] == ["drive3"]
    with pytest.raises(InputError, match="no split 'val'"):
        open_dataset(tmp_path, "val")
    (tmp_path / "splits.json").write_text(json.dumps({"train": names[:3], "test": names[2:4]}))
    with pytest.raises(InputError, match="each recording may be in one split"):
        open_dataset(tmp_path, "test")


def test_synthetic(tmp_path: Path) -> None:
    """Exact labels 200 times a second; an instant without rows is one without objects."""
    (tmp_path / "dataset.json").write_text(json.dumps({"format": "saccade simulated", "classes": ["car", "person"]}))
    recording(tmp_path / "train/0000.h5", some_events())
    t = np.repeat(np.arange(100_000, 600_000, 5000), 2)
    n = len(t)
    boxes = np.tile(np.array([[1, 2, 20, 30], [30, 5, 50, 40.5]]), (n // 2, 1))
    columns = {name: np.arange(n) % 2 for name in ("classes", "tracks", "speed")}
    columns |= {"still_us": np.full(n, 77), "visible": np.full(n, 0.5), "times_us": np.arange(0, 1_000_001, 5000)}
    np.savez(tmp_path / "train/0000_labels.npz", t=t, boxes=boxes, **columns)
    dataset = open_dataset(tmp_path)
    one = dataset.recordings[0]
    assert (dataset.name, dataset.classes, len(one.labels)) == ("synthetic", ("car", "person"), n)
    for rate_hz in (20, 40, 200):
        found = [one.labels_at(int(end), 100) for end in one.ends_us(Sampling(rate_hz=rate_hz))]
        assert None not in found, "every instant of the grid is labelled"
        assert sum(len(labels) for labels in found if labels is not None) == rate_hz
    labels = one.labels_at(200_000, 10)
    assert labels is not None
    assert labels.still_us is not None
    assert labels.visible is not None
    assert (labels.still_us.tolist(), labels.visible.tolist()) == ([77, 77], [0.5, 0.5])
    for least, kept in ((0.5, n), (0.6, 0)):
        rules = LabelRules(classes=dataset.classes, least_visible=least)
        assert len(open_dataset(tmp_path, rules=rules).recordings[0].labels) == kept
    np.savez(tmp_path / "train/0000_labels.npz", t=t, boxes=boxes[1:], **columns)
    with pytest.raises(InputError, match=r"0000_labels\.npz"):
        _ = open_dataset(tmp_path).recordings[0].labels


def test_classes_in_another_encoding_are_refused(tmp_path: Path) -> None:
    own(tmp_path)
    (tmp_path / "classes.txt").write_bytes("Straßenbahn\n".encode("latin-1"))
    with pytest.raises(InputError, match="UTF-8"):
        open_dataset(tmp_path, "train")


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", "\x1b[31m"], ids=["nothing", "line break", "surrogate", "control"])
def test_class_names_are_text_of_one_line(name: str) -> None:
    with pytest.raises(InputError, match="class"):
        Dataset("own", "train", ("car", name), ())


@pytest.mark.parametrize(
    "row", [f"{10**30},1,1,5,5,car,1", f"1000,1,1,5,5,car,{10**30}", "1e308,1,1,5,5,car,1", f"-{10**30},,,,,,", "nan,1,1,5,5,car,1"]
)
def test_huge_times_and_tracks_are_refused(row: str, tmp_path: Path) -> None:
    own(tmp_path, text=f"t_us,x,y,w,h,class,track\n{row}\n2000,1,1,5,5,car,1\n")
    with pytest.raises(InputError, match="line 2"):
        _ = open_dataset(tmp_path, "train").recordings[0].labels
