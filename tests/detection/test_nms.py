"""NMS against a slow, obvious twin, with ties, duplicates and boxes without area."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.detection.matching import nms
from tests.detection import make


def slow_nms(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, threshold: float, across: float = 1.0) -> list[int]:
    rows = sorted(range(len(scores)), key=lambda row: (-scores[row].item(), row))
    corners, kinds = boxes.tolist(), classes.tolist()
    kept: list[int] = []
    for row in rows:
        if all(make.iou(corners[other], corners[row]) <= (threshold if kinds[other] == kinds[row] else across) for other in kept):
            kept.append(row)
    return kept


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_random_boxes(seed: int, whole: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes = make.boxes(80, generator, whole=whole).float().numpy()
    scores = ((torch.rand(80, generator=generator) * 10).ceil() / 10).numpy()  # many ties
    classes = torch.randint(0, 2, (80,), generator=generator).numpy()
    for threshold in (0.0, 0.3, 0.45, 1.0):
        assert nms(boxes, scores, classes, threshold).tolist() == slow_nms(boxes, scores, classes, threshold)
        for across in (0.2, 0.7):
            assert nms(boxes, scores, classes, threshold, across_iou=across).tolist() == slow_nms(boxes, scores, classes, threshold, across)


sides = st.integers(0, 4)  # whole: duplicates, boxes without area and overlaps of exactly 1/2 abound
row = st.tuples(sides, sides, sides, sides, st.integers(0, 2), st.integers(0, 1))


@settings(max_examples=150)
@given(st.lists(row, max_size=12), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 12))
def test_ties_duplicates_and_boxes_without_area(rows: list, threshold: float, maximum: int) -> None:
    table = np.array(rows, np.float32).reshape(-1, 6)
    boxes = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:4]], 1)
    scores, classes = table[:, 4] / 2, table[:, 5].astype(np.int64)
    kept = slow_nms(boxes, scores, classes, threshold)
    assert nms(boxes, scores, classes, threshold).tolist() == kept
    assert nms(boxes, scores, classes, threshold, maximum).tolist() == kept[:maximum]


def test_a_whole_frame() -> None:
    generator = torch.Generator().manual_seed(5)
    boxes = make.boxes(1_680, generator, 320, 256).float().numpy()
    scores, classes = torch.rand(1_680, generator=generator).numpy(), torch.randint(0, 2, (1_680,), generator=generator).numpy()
    kept = nms(boxes, scores, classes, 0.45).tolist()
    assert kept == slow_nms(boxes, scores, classes, 0.45)
    assert 10 < len(kept) < 1_680


def test_a_chain_keeps_every_second_box() -> None:
    """Each hides its neighbour only: what is hidden hides nothing."""
    left = np.arange(9, dtype=np.float32)
    boxes = np.stack([left, np.zeros_like(left), left + np.float32(2.5), np.ones_like(left)], 1)
    assert nms(boxes, np.linspace(1, 0.1, 9), np.zeros(9, np.int64), 0.3).tolist() == [0, 2, 4, 6, 8]
