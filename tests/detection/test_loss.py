"""The loss against the published formulas in plain numbers, and gradients that are there and finite in every case."""

import numpy as np
import pytest
import torch

from saccade.detection.assign import assign
from saccade.detection.boxes import Target
from saccade.detection.loss import loss
from saccade.model.values import Predictions
from tests.detection import make


def cross_entropy(logit: float, wanted: float) -> float:
    p = 1 / (1 + np.exp(-logit))
    return -wanted * np.log(p) - (1 - wanted) * np.log(1 - p)


def slow_loss(predictions: Predictions, targets: list[Target]) -> dict[str, float]:
    matches = assign(predictions, targets)
    boxes = [box for target in targets for box in target.boxes.tolist()]
    kinds = [kind for target in targets for kind in target.classes.tolist()]
    cells = make.cell_list(predictions.grids)
    label_of = {(f, c): label for f, c, label in zip(*(column.tolist() for column in matches), strict=True)}
    terms = {"iou": 0.0, "objectness": 0.0, "class": 0.0, "l1": 0.0}
    for frame in range(len(targets)):
        for cell, (column, row, stride) in enumerate(cells):
            label = label_of.get((frame, cell))
            terms["objectness"] += cross_entropy(predictions.objectness[frame, cell].item(), label is not None)
            if label is None:
                continue
            raw, (left, top, right, bottom) = predictions.boxes[frame, cell].tolist(), boxes[label]
            overlap = make.iou(make.corners(raw, cells[cell]), boxes[label])
            terms["iou"] += 5 * (1 - overlap**2)
            for c, logit in enumerate(predictions.classes[frame, cell].tolist()):
                terms["class"] += cross_entropy(logit, overlap if c == kinds[label] else 0)
            wanted = [(left + right) / 2 / stride - column, (top + bottom) / 2 / stride - row]
            wanted += [np.log((right - left) / stride), np.log((bottom - top) / stride)]
            terms["l1"] += sum(abs(a - b) for a, b in zip(raw, wanted, strict=True))
    count = max(len(label_of), 1)
    return {**{name: term / count for name, term in terms.items()}, "positives": len(label_of)}


def leaves(predictions: Predictions) -> Predictions:
    return Predictions(*(column.requires_grad_() for column in predictions[:3]), predictions.grids)


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("counts", [[3, 0, 5], [0, 0], [1]])
@pytest.mark.parametrize("seed", range(4))
def test_every_term_is_what_the_formulas_give(counts: list[int], l1: bool, seed: int) -> None:
    targets = make.targets(counts, seed=seed)
    predictions = make.predictions(len(counts), seed=seed, dtype=torch.float64)
    slow, fast = slow_loss(predictions, targets), loss(predictions, targets, l1=l1)
    if not l1:
        slow.pop("l1")
    assert fast.positives.item() == slow.pop("positives")
    assert fast.terms.keys() == slow.keys()
    for name, term in slow.items():
        np.testing.assert_allclose(fast.terms[name].item(), term, rtol=1e-10, err_msg=name)
    np.testing.assert_allclose(sum(fast.terms.values()).item(), fast.total.item(), rtol=1e-12)  # whoever adds them up has the total


def test_perfect_predictions_cost_next_to_nothing() -> None:
    predictions = make.silent(classes=2)
    box = [12.0, 8.0, 28.0, 24.0]
    for cell, (column, row, stride) in enumerate(make.cell_list(predictions.grids)):
        predictions.boxes[0, cell] = torch.tensor([20 / stride - column, 16 / stride - row, np.log(16 / stride), np.log(16 / stride)])
    target = Target(torch.tensor([box]), torch.tensor([1]))
    matches = assign(predictions, [target])
    predictions.objectness[0, matches.cells] = 20.0
    predictions.classes[0, matches.cells, 1] = 20.0
    found = loss(predictions, [target], l1=True)
    assert found.total.item() < 1e-4
    assert found.positives.item() == 10  # ten cells in reach say the very box


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("counts", [[4, 0, 1], [0, 0], []])
def test_gradients_are_there_and_finite(counts: list[int], dtype: torch.dtype, l1: bool) -> None:
    """Without labels, and without frames, too: in training on several machines every parameter must get a gradient each time."""
    predictions = leaves(make.predictions(len(counts), dtype=dtype))
    found = loss(predictions, make.targets(counts), l1=l1)
    assert found.total.dtype == torch.float32
    assert not found.positives.requires_grad
    found.total.backward()
    for column in predictions[:3]:
        assert column.grad is not None
        assert column.grad.isfinite().all()
    assert bool(predictions.objectness.grad.any()) == bool(counts)
    assert bool(predictions.boxes.grad.any()) == bool(sum(counts))


def test_huge_outputs_have_finite_loss_and_gradients() -> None:
    predictions = make.predictions(1)
    predictions.boxes[..., 2:] = 300.0
    predictions.objectness[:] = 1e4
    predictions.classes[:] = -1e4
    leaves(predictions)
    total = loss(predictions, make.targets([3]), l1=True).total
    total.backward()
    assert total.isfinite()
    assert all(column.grad.isfinite().all() for column in predictions[:3])


def test_gradients_are_those_of_finite_differences() -> None:
    """The overlap that a class should reach is a target, not a path of the gradient, so classes are left out."""
    predictions = make.predictions(1, dtype=torch.float64, seed=3)
    targets = make.targets([2], seed=3)

    def total(boxes: torch.Tensor, objectness: torch.Tensor) -> torch.Tensor:
        terms = loss(predictions._replace(boxes=boxes, objectness=objectness), targets, l1=True).terms
        return terms["iou"] + terms["objectness"] + terms["l1"]

    assert torch.autograd.gradcheck(total, (predictions.boxes.requires_grad_(), predictions.objectness.requires_grad_()), eps=1e-7)


def test_descent_finds_the_boxes() -> None:
    """A head free to say anything learns to say the labels: matching and loss pull the same way."""
    predictions = leaves(make.predictions(2, sharp=0.1))
    targets = [Target(target.boxes.float(), target.classes) for target in make.targets([2, 1], seed=5)]
    optimiser = torch.optim.Adam(predictions[:3], lr=0.1)
    first = loss(predictions, targets).total.item()
    for _ in range(150):
        optimiser.zero_grad()
        loss(predictions, targets).total.backward()
        optimiser.step()
    found = loss(predictions, targets)
    assert found.terms["iou"].item() < 0.5
    assert found.total.item() < 0.1 * first
