"""COLUMNS -> PRECISION AND RECALL: which detection finds which label, by COCO's rules, best first.

Beside the library that does the same (`library`), because its rows are dictionaries: those of an hour's detections don't fit into
memory, and it can ignore labels by their area only. The tests hold both, and pycocotools, equal.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from saccade.evaluation.score.columns import Columns
from saccade.machine import compiled

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = (1, 10, 100)  # detections of a class in a frame that count; the last one for precision


class Tally(NamedTuple):
    """NaN for classes without labels that count."""

    precision: Float64[np.ndarray, "overlaps 101 classes"]  # the best at this recall or above
    recall: Float64[np.ndarray, "most overlaps classes"]


def tally(columns: Columns, counted: Bool[np.ndarray, "labels"], judged: Bool[np.ndarray, "detections"]) -> Tally:
    """Of the labels that are COUNTED; all others are ignored. A detection that finds no label at all is wrong if it is JUDGED."""
    precision = np.full((len(OVERLAPS), len(RECALLS), columns.classes), np.nan)
    recall = np.full((len(MOST), len(OVERLAPS), columns.classes), np.nan)
    for index, own in _matches(columns, counted, judged, OVERLAPS)[0].items():
        recall[:, :, index] = own.hits / own.total
        for level, peaks in enumerate(own.peaks):
            reached = np.arange(1, own.hits[-1, level] + 1) / own.total
            envelope = np.maximum.accumulate(peaks[: len(reached)][::-1])[::-1]
            first = np.searchsorted(reached, RECALLS)
            there = first < len(reached)
            precision[level, :, index] = 0
            precision[level, there, index] = envelope[first[there]]
    return Tally(precision, recall)


def found(columns: Columns, overlap: float = 0.5) -> Bool[np.ndarray, "labels"]:
    """For every label whether a detection of its class is its own; the best detection chooses first, its largest overlap."""
    counted = ~columns.ignored
    _, taken = _matches(columns, counted, ~columns.uncertain, np.array([overlap]))
    return taken[0] & counted


class _Matches(NamedTuple):
    """Of one class."""

    total: int  # labels that count
    hits: Int64[np.ndarray, "most overlaps"]  # right detections
    peaks: Float64[np.ndarray, "overlaps total"]  # precision at each of them: it only falls in between


def _matches(columns: Columns, counted: np.ndarray, judged: np.ndarray, overlaps: np.ndarray) -> tuple[dict[int, _Matches], np.ndarray]:
    """Of every class that has labels, and for every overlap and label whether a detection has it."""
    groups = np.arange(columns.frames * columns.classes + 1)
    first = np.searchsorted(columns.label_groups, groups)
    scratch = np.zeros(int(np.diff(first).max(initial=0)))
    ranks, taken = np.zeros(len(groups), np.int64), np.zeros((len(overlaps), len(columns.labels)), np.bool_)
    ends = np.searchsorted(columns.detection_classes, np.arange(columns.classes + 1)).tolist()
    totals = np.bincount(columns.label_classes[counted], minlength=columns.classes).tolist()
    result = {}
    for index, total in enumerate(totals):
        if not total:
            continue
        own = slice(ends[index], ends[index + 1])
        matches = _Matches(total, np.zeros((len(MOST), len(overlaps)), np.int64), np.zeros((len(overlaps), total)))
        _match(
            columns.boxes[own], columns.groups[own], judged[own], columns.labels, counted, first, overlaps, np.array(MOST),
            scratch, ranks, taken, matches.hits, matches.peaks,
        )  # fmt: skip
        result[index] = matches
    return result, taken


@compiled
def _best_label(shares: np.ndarray, taken: np.ndarray, counted: np.ndarray, least: float) -> int:
    """The free label with the largest share, the last of equal ones; an ignored one only if no other will do. -1 = none."""
    for wanted in (True, False):
        best, share = -1, least
        for j in range(len(taken)):
            if counted[j] == wanted and not taken[j] and shares[j] >= share:
                best, share = j, shares[j]
        if best >= 0:
            return best
    return -1


@compiled
def _match(
    boxes: np.ndarray, groups: np.ndarray, judged: np.ndarray, labels: np.ndarray, counted: np.ndarray, first: np.ndarray,
    overlaps: np.ndarray, most: np.ndarray, shares: np.ndarray, ranks: np.ndarray, taken: np.ndarray, hits: np.ndarray, peaks: np.ndarray,
) -> None:  # fmt: skip
    """Detections of one class, best first; SHARES is room for the overlaps of one of them, the last four arrays are the result."""
    wrong = np.zeros(len(overlaps), np.int64)
    for i in range(len(boxes)):
        group = groups[i]
        rank = ranks[group]
        ranks[group] += 1
        if rank >= most[-1]:
            continue
        low, high = first[group], first[group + 1]
        left, top, right, bottom = (
            np.float64(boxes[i, 0]), np.float64(boxes[i, 1]), np.float64(boxes[i, 2]), np.float64(boxes[i, 3]),
        )  # fmt: skip
        largest = 0.0
        for j in range(low, high):
            width = min(right, np.float64(labels[j, 2])) - max(left, np.float64(labels[j, 0]))
            height = min(bottom, np.float64(labels[j, 3])) - max(top, np.float64(labels[j, 1]))
            share = 0.0
            if width > 0 and height > 0:
                own = (np.float64(labels[j, 2]) - np.float64(labels[j, 0])) * (np.float64(labels[j, 3]) - np.float64(labels[j, 1]))
                share = width * height / ((right - left) * (bottom - top) + own - width * height)
            shares[j - low] = share
            largest = max(largest, share)
        for level in range(len(overlaps)):
            chosen = -1
            if largest >= overlaps[level]:
                chosen = _best_label(shares, taken[level, low:high], counted[low:high], overlaps[level])
            if chosen < 0:
                wrong[level] += judged[i]
                continue
            taken[level, low + chosen] = True
            if counted[low + chosen]:
                peaks[level, hits[-1, level]] = (hits[-1, level] + 1) / (wrong[level] + hits[-1, level] + 1 + np.spacing(1.0))
                for limit in range(len(most)):
                    hits[limit, level] += rank < most[limit]
