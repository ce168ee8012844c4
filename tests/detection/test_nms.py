"""NMS: both methods against a slow, obvious twin, with ties, duplicates and boxes without area."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.detection.nms import nms
from tests.detection import make

METHODS = ["compiled", "torch"]


def slow_nms(boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor, threshold: float) -> list[int]:
    rows = sorted(range(len(scores)), key=lambda row: (-scores[row].item(), row))
    kept: list[int] = []
    for row in rows:
        rivals = [other for other in kept if classes[other] == classes[row]]
        if all(make.iou(boxes[other].tolist(), boxes[row].tolist()) <= threshold for other in rivals):
            kept.append(row)
    return kept


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_random_boxes(seed: int, whole: bool, method: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes = make.boxes(80, generator, whole=whole).float()
    scores = (torch.rand(80, generator=generator) * 10).ceil() / 10  # many ties
    classes = torch.randint(0, 2, (80,), generator=generator)
    for threshold in (0.0, 0.3, 0.45, 1.0):
        assert nms(boxes, scores, classes, threshold, method=method).tolist() == slow_nms(boxes, scores, classes, threshold)


sides = st.integers(0, 4)  # whole: duplicates, boxes without area and overlaps of exactly 1/2 abound
row = st.tuples(sides, sides, sides, sides, st.integers(0, 2), st.integers(0, 1))


@settings(max_examples=150)
@given(st.lists(row, max_size=12), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from(METHODS), st.integers(1, 12))
def test_ties_duplicates_and_boxes_without_area(rows: list, threshold: float, method: str, maximum: int) -> None:
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 6)
    boxes = torch.cat([table[:, :2], table[:, :2] + table[:, 2:4]], 1)
    scores, classes = table[:, 4] / 2, table[:, 5].long()
    kept = slow_nms(boxes, scores, classes, threshold)
    assert nms(boxes, scores, classes, threshold, method=method).tolist() == kept
    assert nms(boxes, scores, classes, threshold, maximum, method).tolist() == kept[:maximum]


def test_the_methods_agree_on_a_whole_frame() -> None:
    generator = torch.Generator().manual_seed(5)
    boxes = make.boxes(1_680, generator, 320, 256).float()
    scores, classes = torch.rand(1_680, generator=generator), torch.randint(0, 2, (1_680,), generator=generator)
    first, second = (nms(boxes, scores, classes, 0.45, method=name) for name in METHODS)
    assert torch.equal(first, second)
    assert 10 < len(first) < 1_680


def test_a_chain_keeps_every_second_box() -> None:
    """Each hides its neighbour only: what is hidden hides nothing."""
    left = torch.arange(9.0)
    boxes = torch.stack([left, torch.zeros(9), left + 2.5, torch.ones(9)], 1)
    for method in METHODS:
        kept = nms(boxes, torch.linspace(1, 0.1, 9), torch.zeros(9, dtype=torch.int64), 0.3, method=method)
        assert kept.tolist() == [0, 2, 4, 6, 8]
