"""Events: one length, the right types, and a piece is a source like a recording. Detections: nothing is lost on the way to others."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import saccade
from saccade.types import Detections, Events, InputError
from tests.make.events import assert_equal, random_events


def test_a_piece_is_a_source() -> None:
    source = random_events(1000)
    assert_equal(Events.join(list(source)), source)
    assert [len(window) for window in saccade.windows(source, 20, "disjoint")] == [
        len(w) for w in saccade.windows([source], 20, "disjoint")
    ]
    assert sum(frame.events for frame in saccade.frames(source, 20)) == 1000


def test_slices_share_memory_and_masks_select() -> None:
    source = random_events(100)
    assert np.shares_memory(source[10:20].t, source.t)
    assert_equal(source[source.p], source[np.flatnonzero(source.p)])


def test_join_refuses_parts_of_different_sensors() -> None:
    with pytest.raises(InputError, match="different sensors"):
        Events.join([random_events(1, width=10), random_events(1, width=20)])
    with pytest.raises(InputError, match="nothing to join"):
        Events.join([])


def test_shown_are_sure_boxes_and_those_of_followed_objects_down_to_a_third() -> None:
    scores, tracks = np.array([0.7, 0.6, 0.5, 0.3, 0.2, 0.1], np.float32), np.array([-1, 4, -1, 5, 6, 7])
    boxes = np.arange(24, dtype=np.float32).reshape(6, 4)
    found = Detections(boxes, scores, np.zeros(6, np.int64), 0, tracks)
    assert found.shown(0.6).boxes.tolist() == boxes[[0, 1, 3, 4]].tolist()
    assert found.shown(0.0) is found
    assert len(Detections(boxes, scores, np.zeros(6, np.int64), 0).shown(0.6)) == 2  # nobody follows them


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("np.zeros(3), u, u, b", "must be int64"),
        ("t, u.astype(int), u, b", "must be int64 .us., uint16, uint16, bool, got int64, int64, uint16, bool"),
        ("t, u[:2], u, b", "one length"),
        ("t.reshape(1, 3), u.reshape(1, 3), u.reshape(1, 3), b.reshape(1, 3)", "one length"),
    ],
)
def test_wrong_columns_are_refused(columns: str, message: str) -> None:
    """In a process without the shape checks of the tests, as users run it."""
    code = f"""
import numpy as np
from saccade.types import Detections, Events, InputError
t, u, b = np.zeros(3, np.int64), np.zeros(3, np.uint16), np.zeros(3, np.bool_)
try:
    Events({columns}, 4, 4)
except InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1], check=True)
    assert re.search(message, result.stdout), result.stdout


def some_detections(count: int = 3, tracked: bool = True) -> Detections:
    corners = np.random.default_rng(0).uniform(0, 100, (count, 2, 2)).astype(np.float32)
    corners.sort(axis=1)
    scores = np.linspace(0.9, 0.3, count, dtype=np.float32)
    return Detections(corners.reshape(-1, 4), scores, np.arange(count) % 2, 250_000, np.arange(count) + 7 if tracked else None)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_table_is_plain_rows(tracked: bool) -> None:
    found = some_detections(tracked=tracked)
    rows = found.table(("car", "pedestrian"))
    assert json.loads(json.dumps(rows)) == rows
    assert list(rows[0]) == ["time_us", "x1", "y1", "x2", "y2", "score", "class", "track"]
    assert [row["class"] for row in rows] == ["car", "pedestrian", "car"]
    assert [row["track"] for row in rows] == ([7, 8, 9] if tracked else [None] * 3)
    np.testing.assert_array_equal(np.array([[row[name] for name in ("x1", "y1", "x2", "y2")] for row in rows], np.float32), found.boxes)
    assert {row["time_us"] for row in rows} == {250_000}
    assert [row["class"] for row in found.table()] == [0, 1, 0]
    assert some_detections(0).table(("car",)) == []


def test_names_must_be_enough() -> None:
    with pytest.raises(InputError, match="only 1 names: car"):
        some_detections().table(("car",))


def test_coco_takes_the_results() -> None:
    """A box found where the label is, and the boxes of an empty frame, by pycocotools itself."""
    found = some_detections(2)
    results = found.to_coco(4) + some_detections(0).to_coco(5)
    assert json.loads(json.dumps(results)) == results
    truth = COCO()
    truth.dataset = {
        "images": [{"id": 4}, {"id": 5}],
        "categories": [{"id": 1, "name": "car"}, {"id": 2, "name": "pedestrian"}],
        "annotations": [
            {**result, "id": i, "area": result["bbox"][2] * result["bbox"][3], "iscrowd": 0} for i, result in enumerate(results, 1)
        ],
    }
    truth.createIndex()
    judged = COCOeval(truth, truth.loadRes(results), "bbox")
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    assert judged.stats[0] == pytest.approx(1.0)
    assert [row["category_id"] for row in found.to_coco(4, first_category=0)] == [0, 1]


def test_supervision_gets_everything() -> None:
    pytest.importorskip("supervision")
    found = some_detections()
    given = found.to_supervision(("car", "pedestrian"))
    np.testing.assert_array_equal(given.xyxy, found.boxes)
    np.testing.assert_array_equal(given.confidence, found.scores)
    np.testing.assert_array_equal(given.class_id, found.classes)
    np.testing.assert_array_equal(given.tracker_id, found.tracks)
    assert given.data["class_name"].tolist() == ["car", "pedestrian", "car"]
    assert given.metadata == {"time_us": 250_000}
    assert len(some_detections(0, tracked=False).to_supervision()) == 0
    given.xyxy[:] = 0  # theirs is a copy
    assert found.boxes.any()


def test_without_supervision_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(InputError, match=r"saccade-events\[supervision\]"):
        some_detections().to_supervision()
