"""SimOTA against a slow, obvious twin: cell by cell, label by label, in plain numbers."""

import numpy as np
import pytest
import torch

from saccade.detection.assign import assign
from saccade.detection.boxes import Target
from saccade.model.values import Predictions
from saccade.types import InputError
from tests.detection import make


def surprise(probability: float) -> float:
    return min(-np.log(probability), 100.0) if probability > 0 else 100.0


def slow_assign(raw, objectness, classes, grids, boxes, kinds) -> dict[int, int]:
    """One frame: {cell: label}."""
    cells = make.cell_list(grids)

    def reached(cell, box) -> bool:
        column, row, stride = cell
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        return abs((column + 0.5) * stride - x) < 1.5 * stride and abs((row + 0.5) * stride - y) < 1.5 * stride

    union = [cell for cell in range(len(cells)) if any(reached(cells[cell], box) for box in boxes)]
    if not union:
        return {}
    cost = np.zeros((len(boxes), len(union)))
    claims: dict[int, list[int]] = {place: [] for place in range(len(union))}
    for label, (box, kind) in enumerate(zip(boxes, kinds, strict=True)):
        overlaps = []
        for place, cell in enumerate(union):
            overlaps.append(make.iou(box, make.corners(raw[cell], cells[cell])))
            for c, logit in enumerate(classes[cell]):
                p = np.sqrt(1 / (1 + np.exp(-logit)) / (1 + np.exp(-objectness[cell])))
                cost[label, place] += surprise(p) if c == kind else surprise(1 - p)
            cost[label, place] += 3 * -np.log(overlaps[-1] + 1e-8)
            if not reached(cells[cell], box):
                cost[label, place] += 1e6
        k = max(1, int(sum(sorted(overlaps)[-10:])))
        for place in sorted(range(len(union)), key=lambda place: (cost[label, place], place))[:k]:
            claims[place].append(label)
    return {
        union[place]: labels[0] if len(labels) == 1 else int(cost[:, place].argmin()) for place, labels in claims.items() if labels
    }  # of several, the cheapest of *all* labels


def compare(predictions: Predictions, targets: list[Target]) -> int:
    matches = assign(predictions, targets)
    first = 0
    for frame, target in enumerate(targets):
        raw, objectness, classes = (column[frame].double().numpy() for column in predictions[:3])
        slow = slow_assign(raw, objectness, classes, predictions.grids, target.boxes.tolist(), target.classes.tolist())
        here = matches.frames == frame
        fast = dict(zip(matches.cells[here].tolist(), (matches.labels[here] - first).tolist(), strict=True))
        assert fast == slow
        first += len(target.boxes)
    assert len(set(zip(matches.frames.tolist(), matches.cells.tolist(), strict=True))) == len(matches.cells)
    return len(matches.cells)


def toward(predictions: Predictions, targets: list[Target]) -> Predictions:
    """As trained: the cells of a frame say its labels, roughly, so that overlaps are large and labels contend."""
    boxes = predictions.boxes.clone()
    for frame, target in enumerate(targets):
        for index, (column, row, stride) in enumerate(make.cell_list(predictions.grids)):
            if len(target.boxes):
                left, top, right, bottom = target.boxes[index % len(target.boxes)].tolist()
                box = [(left + right) / 2 / stride - column, (top + bottom) / 2 / stride - row]
                box += [np.log((right - left) / stride), np.log((bottom - top) / stride)]
                boxes[frame, index] = boxes[frame, index] * 0.1 + torch.tensor(box, dtype=boxes.dtype)
    return predictions._replace(boxes=boxes)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_random_boxes(seed: int, trained: bool, whole: bool) -> None:
    """Float64: beside the 1e6 of cells out of reach, float32 has no digits left to order them by."""
    counts = [seed % 5, 0, 1, 6]
    targets = make.targets(counts, seed=seed, whole=whole)
    predictions = make.predictions(4, seed=seed, dtype=torch.float64)
    assert compare(toward(predictions, targets) if trained else predictions, targets) >= 2


def test_more_labels_than_cells() -> None:
    grids = ((1, 2), (1, 1), (1, 1))
    targets = make.targets([12, 9], width=16, height=8, seed=4)
    assert compare(make.predictions(2, grids=grids, dtype=torch.float64), targets) <= 8


@pytest.mark.parametrize("seed", range(5))
def test_equal_labels_and_equal_cells(seed: int) -> None:
    """Ties: the first label, the first cell."""
    (target,) = make.targets([3], seed=seed, whole=True)
    twice = Target(torch.cat([target.boxes, target.boxes]), torch.cat([target.classes, target.classes]))
    predictions = make.predictions(1, dtype=torch.float64, sharp=0.0)
    compare(predictions, [twice])
    assert set(assign(predictions, [twice]).labels.tolist()) <= {0, 1, 2}


def test_a_label_on_a_corner_of_cells_reaches_only_those_nearer_than_one_and_a_half_strides() -> None:
    compare(make.predictions(1, dtype=torch.float64), [Target(torch.tensor([[8.0, 8, 24, 24]]), torch.tensor([1]))])


def test_labels_out_of_reach() -> None:
    """A label beyond the canvas has no cell of its own: alone it gets none; beside others it takes one of theirs, as published."""
    predictions = make.predictions(1, dtype=torch.float64)
    far = [[500.0, 500, 520, 520], [-1e30, 0, 5, 5], [0, 0, 1e30, 1e30]]
    alone = Target(torch.tensor(far, dtype=torch.float64), torch.tensor([0, 1, 2]))
    assert compare(predictions, [alone]) == 0
    (near,) = make.targets([2], seed=1)
    compare(predictions, [Target(torch.cat([near.boxes, alone.boxes[:1]]), torch.tensor([0, 1, 2]))])


def test_no_labels_and_no_frames_match_nothing() -> None:
    assert len(assign(make.predictions(2), make.targets([0, 0])).cells) == 0
    assert len(assign(make.predictions(0), []).cells) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_matches_as_its_values_do(dtype: torch.dtype) -> None:
    """bfloat16 outputs are worked out in float32, under autocast, too."""
    targets = make.targets([1, 1, 1], seed=8, width=320, height=256)
    predictions = make.predictions(3, grids=make.GEN1, dtype=dtype)
    exact = Predictions(*(column.double() for column in predictions[:3]), predictions.grids)
    with torch.autocast("cpu", torch.bfloat16):
        found = assign(predictions, targets)
    for one, other in zip(found, assign(exact, targets), strict=True):
        assert torch.equal(one, other)


def test_nan_crashes_nothing() -> None:
    predictions = make.predictions(1)
    predictions.boxes[0, ::2] = torch.nan
    predictions.objectness[0, ::3] = torch.nan
    assert len(assign(predictions, make.targets([4])).cells)


def test_every_frame_needs_a_target() -> None:
    with pytest.raises(InputError, match="1 targets for 2 frames"):
        assign(make.predictions(2), make.targets([1]))
