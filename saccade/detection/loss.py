"""PREDICTIONS + TARGETS -> NAMED LOSS TERMS: IoU, objectness, class and L1, as published."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from saccade.detection.assign import match
from saccade.detection.boxes import Cells, Target, cells_of, from_raw, from_xywh, overlap, precise, to_xywh
from saccade.model.values import Predictions

OVERLAP_WEIGHT = 5.0


class Loss(NamedTuple):
    """What is to be made small."""

    terms: dict[str, Tensor]  # they add up to the total
    positives: Tensor  # number of cells that learn a label, detached

    @property
    def total(self) -> Tensor:
        return torch.stack(list(self.terms.values())).sum()


def loss(predictions: Predictions, targets: list[Target], *, l1: bool = False) -> Loss:
    """Terms "iou", "objectness", "class", with L1 also "l1": `loss(predictions, targets).total.backward()`.

    Each is a sum over all frames, divided by the number of cells that learn a label (at least 1). That number stays on the device: sums
    run over all cells in reach of a label, with those that learn none as zeros, so that nobody waits for it.
    """
    found, labels = match(predictions, targets)
    at = (found.frames, found.cells)
    cells = Cells(*(column[found.cells] for column in cells_of(predictions)))
    raw, true = predictions.boxes[at], labels.boxes[found.labels]
    overlaps = overlap(from_xywh(from_raw(raw, cells)), true)
    learns = found.learns.to(overlaps.dtype)
    wanted = torch.zeros_like(precise(predictions.objectness))
    wanted[at] = learns.to(wanted.dtype)
    classes = precise(predictions.classes[at])
    kinds = torch.arange(classes.shape[-1], device=classes.device)
    right = (labels.classes[found.labels][:, None] == kinds) * overlaps.detach()[:, None]
    terms = {
        "iou": OVERLAP_WEIGHT * torch.where(found.learns, 1 - overlaps.square(), 0).sum(),
        "objectness": binary_cross_entropy_with_logits(precise(predictions.objectness), wanted, reduction="sum"),
        "class": binary_cross_entropy_with_logits(classes, right, learns[:, None], reduction="sum"),
    }
    if l1:
        terms["l1"] = torch.where(found.learns[:, None], (precise(raw) - to_raw(true, cells)).abs(), 0).sum()
    positives = found.learns.sum()
    count = positives.clamp(min=1)
    return Loss({name: term / count for name, term in terms.items()}, positives)


def to_raw(boxes: Tensor, cells: Cells) -> Tensor:
    """Corners in pixels -> the raw outputs of these cells that decode to them; inverse of `from_raw`."""
    scaled = to_xywh(boxes) / cells.stride[:, None]
    corner = torch.stack([cells.x, cells.y], -1)
    return torch.cat([scaled[:, :2] - corner, scaled[:, 2:].log()], -1)
