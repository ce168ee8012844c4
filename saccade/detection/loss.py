"""PREDICTIONS + TARGETS -> NAMED LOSS TERMS: IoU, objectness, class and L1, as published."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from saccade.detection.assign import join, match
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

    Each is a sum over all frames, divided by the number of cells that learn a label (at least 1).
    """
    labels, frame_of = join(targets, predictions)
    matches = match(predictions, labels, frame_of)
    at = (matches.frames, matches.cells)
    cells = Cells(*(column[matches.cells] for column in cells_of(predictions)))
    raw, true = predictions.boxes[at], labels.boxes[matches.labels]
    overlaps = overlap(from_xywh(from_raw(raw, cells)), true)
    wanted = torch.zeros_like(precise(predictions.objectness))
    wanted[at] = 1
    classes = precise(predictions.classes[at])
    right = one_hot(labels.classes[matches.labels], classes.shape[-1]) * overlaps.detach()[:, None]
    terms = {
        "iou": OVERLAP_WEIGHT * (1 - overlaps.square()).sum(),
        "objectness": binary_cross_entropy_with_logits(precise(predictions.objectness), wanted, reduction="sum"),
        "class": binary_cross_entropy_with_logits(classes, right, reduction="sum"),
    }
    if l1:
        terms["l1"] = (precise(raw) - to_raw(true, cells)).abs().sum()
    count = max(len(matches.cells), 1)
    return Loss({name: term / count for name, term in terms.items()}, torch.tensor(len(matches.cells)))


def to_raw(boxes: Tensor, cells: Cells) -> Tensor:
    """Corners in pixels -> the raw outputs of these cells that decode to them; inverse of `from_raw`."""
    scaled = to_xywh(boxes) / cells.stride[:, None]
    corner = torch.stack([cells.x, cells.y], -1)
    return torch.cat([scaled[:, :2] - corner, scaled[:, 2:].log()], -1)
