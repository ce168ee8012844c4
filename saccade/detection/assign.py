"""PREDICTIONS + TARGETS -> MATCHES: which cell learns which label (SimOTA), for all frames at once.

Labels may stay on the CPU while the predictions are on a GPU: all that decides a shape comes from the labels, so nothing waits for the GPU.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from saccade.detection.boxes import Cells, Target, cells_of, check_target, from_raw, from_xywh, overlap, precise, to_xywh
from saccade.model.values import STRIDES, Predictions
from saccade.types import InputError

REACH = 1.5  # strides from a label's centre to the centre of a cell that may learn it
OVERLAP_WEIGHT = 3.0
OUTSIDE = 1e6  # cost added to a cell that is in reach of other labels only
LARGEST = 10  # a label gets as many cells as its LARGEST overlaps add up to (SimOTA's dynamic k)
LARGEST_CROSS_ENTROPY = 100.0  # -log 0, as torch's cross entropy clamps it
WORST = 1e9  # cost where the predictions are NaN: matching goes on, and the loss becomes NaN

CostTable = Float[Tensor, "labels candidates"]


class Matches(NamedTuple):
    """Cells with a label to learn; the target of every other cell is "no object"."""

    frames: Int64[Tensor, "positives"]
    cells: Int64[Tensor, "positives"]
    labels: Int64[Tensor, "positives"]  # row in the labels of all frames, one after the other


class Owners(NamedTuple):
    """The cells in reach of any label, and what each learns: their number is known before the predictions are."""

    frames: Int64[Tensor, "union"]
    cells: Int64[Tensor, "union"]
    labels: Int64[Tensor, "union"]  # row in the labels of all frames; 0 where nothing is learned
    learns: Bool[Tensor, "union"]  # false: its target is "no object"


class Candidates(NamedTuple):
    """The cells in reach of any label (the union), and a table of them with a row per label: all that are in its frame."""

    frames: Int64[Tensor, "union"]
    cells: Int64[Tensor, "union"]  # frame by frame, ascending
    rows: Int64[Tensor, "labels candidates"]  # index into the union; rows of frames with fewer are padded with their first
    exists: Bool[Tensor, "labels candidates"]  # false where padded
    inside: Bool[Tensor, "labels candidates"]  # in reach of this very label


def join(targets: list[Target], predictions: Predictions) -> tuple[Target, Int64[Tensor, "labels"]]:
    """All labels one after the other, checked, and the frame of each; on the device of the targets."""
    frames, _, classes = predictions.classes.shape
    if len(targets) != frames:
        raise InputError(f"loss: {len(targets)} targets for {frames} frames; give every frame one, without boxes if it has none")
    boxes = torch.cat([target.boxes for target in targets] or [torch.zeros(0, 4)]).to(precise(predictions.boxes[:0]).dtype)
    ids = torch.cat([target.classes for target in targets] or [torch.zeros(0, dtype=torch.int64)])
    check_target(Target(boxes, ids), classes)
    counts = torch.tensor([len(target.boxes) for target in targets], dtype=torch.int64)
    return Target(boxes, ids), torch.repeat_interleave(counts).to(boxes.device)


def assign(predictions: Predictions, targets: list[Target]) -> Matches:
    """SimOTA as published: cost = class + 3 overlap; each label takes its k cheapest cells; a contested cell goes to the cheapest label."""
    found, _ = match(predictions, targets)
    taken = found.learns.nonzero()[:, 0]
    return Matches(found.frames[taken], found.cells[taken], found.labels[taken])


@torch.no_grad()
def match(predictions: Predictions, targets: list[Target]) -> tuple[Owners, Target]:
    """`assign` without waiting for the device of the predictions: every cell in reach with its label, if any; and the labels, joined."""
    labels, frame_of = join(targets, predictions)
    found, labels = _moved(candidates(predictions, labels, frame_of), labels, predictions.boxes.device)
    if not len(found.cells):
        return Owners(found.frames, found.cells, found.cells, found.cells > 0), labels
    cost, overlaps = costs(predictions, labels, found, cells_of(predictions))
    owner = resolve(cost, claim(cost, overlaps), found)
    learns = owner < len(labels.boxes)
    return Owners(found.frames, found.cells, torch.where(learns, owner, 0), learns), labels


def _moved(found: Candidates, labels: Target, device: torch.device) -> tuple[Candidates, Target]:
    return (
        Candidates(*(column.to(device, non_blocking=True) for column in found)),
        Target(*(column.to(device, non_blocking=True) for column in labels)),
    )


def candidates(predictions: Predictions, labels: Target, frame_of: Tensor) -> Candidates:
    """Cell centres less than 1.5 strides from a label's centre on both axes are the 3 x 3 around it: only those are looked at."""
    device, frames, count = labels.boxes.device, predictions.boxes.shape[0], predictions.boxes.shape[1]
    centre = to_xywh(labels.boxes)[:, :2]
    steps = torch.arange(-1, 2, device=device)
    near, first = [], 0
    for stride, (rows, columns) in zip(STRIDES, predictions.grids, strict=True):
        position = centre / stride
        cells = position.floor().clamp(-4, 1 << 20).long()[:, :, None] + steps  # labels, axes, 3; clamped: far outside stays outside
        reached = (cells + 0.5 - position[:, :, None]).abs() < REACH
        reached &= (cells >= 0) & (cells < torch.tensor([[columns], [rows]], device=device))
        both = reached[:, 1, :, None] & reached[:, 0, None, :]
        cell = first + cells[:, 1, :, None] * columns + cells[:, 0, None, :]
        near.append(torch.where(both, frame_of[:, None, None] * count + cell, -1).flatten(1))
        first += rows * columns
    reach = torch.cat(near, 1)  # labels, 27
    union = torch.unique(reach[reach >= 0])  # sorted: frame by frame, cell by cell
    per_frame = torch.bincount(union // count, minlength=frames)
    start = per_frame.cumsum(0) - per_frame
    width = int(per_frame.max()) if len(union) else 0
    places = torch.arange(width, device=device)
    exists = places < per_frame[frame_of][:, None]
    table = torch.where(exists, start[frame_of][:, None] + places, start[frame_of][:, None].clamp_max(max(len(union) - 1, 0)))
    row, column = (reach >= 0).nonzero().T
    inside = torch.zeros_like(exists)
    inside[row, torch.searchsorted(union, reach[row, column]) - start[frame_of[row]]] = True
    return Candidates(union // count, union % count, table, exists, inside)


def costs(predictions: Predictions, labels: Target, found: Candidates, cells: Cells) -> tuple[CostTable, CostTable]:
    """The cost of each label taking each candidate of its frame, and the IoU of their boxes."""
    at = (found.frames, found.cells)
    near = Cells(cells.x[found.cells], cells.y[found.cells], cells.stride[found.cells])
    boxes = from_xywh(from_raw(predictions.boxes[at], near))
    overlaps = overlap(labels.boxes[:, None], boxes[found.rows]).nan_to_num(0.0) * found.exists
    objectness, classes = precise(predictions.objectness[at]).sigmoid(), precise(predictions.classes[at]).sigmoid()
    likelihood = (objectness[:, None] * classes).sqrt()
    yes, no = (-part.log().clamp_min(-LARGEST_CROSS_ENTROPY) for part in (likelihood, 1 - likelihood))
    cross_entropy = no.sum(1, keepdim=True) - no + yes  # with each class as the true one
    cost = cross_entropy[found.rows, labels.classes[:, None]] - OVERLAP_WEIGHT * (overlaps + 1e-8).log() + OUTSIDE * ~found.inside
    return cost.nan_to_num(WORST).masked_fill(~found.exists, torch.inf), overlaps


def claim(cost: CostTable, overlaps: CostTable) -> Bool[Tensor, "labels candidates"]:
    """Each label's k cheapest candidates, the earlier cell if equal; k = what its ten largest overlaps add up to, at least one."""
    largest = overlaps.topk(min(LARGEST, overlaps.shape[1]), 1).values
    wanted = largest.sum(1).long().clamp_min(1)
    order = cost.argsort(dim=1, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(cost.shape[1], device=cost.device).expand_as(order))
    return (rank < wanted[:, None]) & cost.isfinite()


def resolve(cost: CostTable, claims: Tensor, found: Candidates) -> Int64[Tensor, "union"]:
    """The label of every candidate: its only claimant, or, of several, the cheapest of all labels, claimant or not, as published."""
    count, rows = len(found.cells), len(cost)
    index = found.rows.flatten()
    claimants = index.new_zeros(count).scatter_add_(0, index, claims.flatten().long())
    lowest = cost.new_full((count,), torch.inf).scatter_reduce_(0, index, cost.flatten(), "amin")
    label = torch.arange(rows, device=cost.device)[:, None].expand_as(cost)

    def first(which: Tensor) -> Tensor:
        return index.new_full((count,), rows).scatter_reduce_(0, index, torch.where(which, label, rows).flatten(), "amin")

    cheapest = first((cost == lowest[found.rows]) & found.exists)
    return torch.where(claimants > 1, cheapest, first(claims))
