"""ANSWERS -> PRECISION AND RECALL by COCO's rules: which detection finds which label, best first.

By hand, because the libraries' rows are dictionaries: those of an hour's detections don't fit into memory, and they can ignore labels by
their area only. The tests hold this equal to pycocotools and faster-coco-eval.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int8, Int32, Int64

from saccade.evaluation.result import Answer
from saccade.evaluation.score.protocol import Protocol, judge
from saccade.machine import compiled
from saccade.types import InputError

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = (1, 10, 100)  # detections of a class in a frame that count; the last one for precision


@dataclass(frozen=True, eq=False)
class FlatAnswers:
    """Labels and detections of all frames as arrays, not objects: an hour at 20 Hz has millions of detections.

    A group is a frame and a class, frame * classes + class: only within it can a detection find a label. Labels are in the order of
    groups; detections in that of classes, then best first, equal scores in the order of frames, as COCO ranks them.
    """

    frames: int
    classes: int
    labels: Float32[np.ndarray, "labels 4"]
    label_groups: Int64[np.ndarray, "labels"]
    ignored: Bool[np.ndarray, "labels"]  # neither found nor missed
    still_us: Float64[np.ndarray, "labels"]  # NaN if not known
    speed_px_s: Float64[np.ndarray, "labels"]
    boxes: Float32[np.ndarray, "detections 4"]
    scores: Float32[np.ndarray, "detections"]
    groups: Int64[np.ndarray, "detections"]
    uncertain: Bool[np.ndarray, "detections"]  # not wrong if they find nothing
    frame_recordings: Int64[np.ndarray, "frames"]  # which recording a frame is of, from 0
    recordings: int  # also those of which no frame counts

    @property
    def label_classes(self) -> Int64[np.ndarray, "labels"]:
        return self.label_groups % self.classes

    @property
    def detection_classes(self) -> Int64[np.ndarray, "detections"]:
        return self.groups % self.classes


def flatten(answers: Iterable[Answer], classes: int, protocol: Protocol | None = None) -> FlatAnswers:
    """All that counts under PROTOCOL; None = everything as it is."""
    numbers: dict[str, int] = {}  # of recordings, in the order in which they come
    numbered = [(numbers.setdefault(answer.recording, len(numbers)), judge(answer, protocol)) for answer in answers]
    frames = [judged for _, judged in numbered if judged is not None]
    truths = [labels for frame in frames for labels in (frame.labels, frame.ignored)]
    sizes = np.array([len(labels) for labels in truths], np.int64)
    place = np.repeat(np.arange(len(truths)), sizes)
    label_groups = place // 2 * classes + _classes(_joined([labels.classes for labels in truths], np.int64), classes, "labels")
    order = np.argsort(label_groups, kind="stable")
    still_us, speed_px_s = (_known([getattr(labels, name) for labels in truths], sizes)[order] for name in ("still_us", "speed_px_s"))
    detections = [frame.detections for frame in frames]
    kinds = _classes(_joined([found.classes for found in detections], np.int64), classes, "detections")
    scores = _joined([found.scores for found in detections], np.float32)
    if not np.isfinite(scores).all():
        raise InputError("scores: a detection's score isn't finite; look for NaN or infinities in what the detector says")
    groups = np.repeat(np.arange(len(frames)), [len(found) for found in detections]) * classes + kinds
    ranked = np.lexsort((-scores, kinds))  # stable
    return FlatAnswers(
        frames=len(frames),
        classes=classes,
        labels=_boxes([labels.boxes for labels in truths], "labels")[order],
        label_groups=label_groups[order],
        ignored=(place % 2 == 1)[order],
        still_us=still_us,
        speed_px_s=speed_px_s,
        boxes=_boxes([found.boxes for found in detections], "detections")[ranked],
        scores=scores[ranked],
        groups=groups[ranked],
        uncertain=_joined([frame.uncertain for frame in frames], np.bool_)[ranked],
        frame_recordings=np.array([number for number, judged in numbered if judged is not None], np.int64),
        recordings=len(numbers),
    )


class Findings(NamedTuple):
    """What each detection finds. How often a recording counts changes nothing of it: recordings share no frame."""

    outcomes: Int8[np.ndarray, "overlaps detections"]  # 1 = right, -1 = wrong, 0 = neither
    hits: Int64[np.ndarray, "most overlaps classes"]  # right ones among the best of each class and frame
    taken: Bool[np.ndarray, "overlaps labels"]


def findings_of(
    answers: FlatAnswers, counted: Bool[np.ndarray, "labels"], judged: Bool[np.ndarray, "detections"], overlaps: np.ndarray = OVERLAPS
) -> Findings:
    """Of the labels that are COUNTED; all others are ignored. A detection that finds no label at all is wrong if it is JUDGED."""
    first = np.searchsorted(answers.label_groups, np.arange(answers.frames * answers.classes + 1))
    scratch = np.zeros(int(np.diff(first).max(initial=0)))
    findings = Findings(
        np.zeros((len(overlaps), len(answers.boxes)), np.int8),
        np.zeros((len(MOST), len(overlaps), answers.classes), np.int64),
        np.zeros((len(overlaps), len(answers.labels)), np.bool_),
    )
    _match(answers.boxes, answers.groups, judged, answers.labels, counted, first, overlaps, np.array(MOST), scratch, *findings)
    return findings


class PrecisionRecall(NamedTuple):
    """NaN for classes without labels that count."""

    precision: Float64[np.ndarray, "overlaps 101 classes"]  # the best at this recall or above
    recall: Float64[np.ndarray, "most overlaps classes"]


def precision_recall(answers: FlatAnswers, counted: Bool[np.ndarray, "labels"], judged: Bool[np.ndarray, "detections"]) -> PrecisionRecall:
    """Of the labels that are COUNTED; all others are ignored. A detection that finds no label at all is wrong if it is JUDGED."""
    findings = findings_of(answers, counted, judged)
    totals = np.bincount(answers.label_classes[counted], minlength=answers.classes)
    recall = np.where(totals, findings.hits / np.maximum(totals, 1), np.nan)
    precision = np.full((len(OVERLAPS), len(RECALLS), answers.classes), np.nan)
    together = replace(answers, frame_recordings=np.zeros(answers.frames, np.int64), recordings=1)
    for level, index, best in precision_by_weight(together, counted, findings, np.ones((1, 1), np.int32)):
        precision[level, :, index] = best[:, 0]
    return PrecisionRecall(precision, recall)


def precision_by_weight(
    answers: FlatAnswers, counted: Bool[np.ndarray, "labels"], findings: Findings, weights: Int32[np.ndarray, "recordings draws"]
) -> Iterator[tuple[int, int, Float64[np.ndarray, "101 draws"]]]:
    """(overlap, class, the best precision at each recall or above) of classes with labels, as if each recording were there that often.

    WEIGHTS: a column per draw. Copies of a detection rank side by side, as they do in COCO if no two scores are equal. NaN in draws
    without a label of the class.
    """
    ends = np.searchsorted(answers.detection_classes, np.arange(answers.classes + 1)).tolist()
    recordings = answers.frame_recordings[answers.groups // answers.classes]
    own = answers.frame_recordings[answers.label_groups // answers.classes] * answers.classes + answers.label_classes
    labels = np.bincount(own[counted], minlength=answers.recordings * answers.classes).reshape(-1, answers.classes)
    for index in np.flatnonzero(labels.sum(axis=0)).tolist():
        which, totals = slice(ends[index], ends[index + 1]), labels[:, index] @ weights
        for level, outcomes in enumerate(findings.outcomes):
            best = np.zeros((len(RECALLS), weights.shape[1]))
            _accumulate(outcomes[which], recordings[which], weights, totals, RECALLS, best)
            best[:, totals == 0] = np.nan
            yield level, index, best


def found(answers: FlatAnswers, overlap: float = 0.5) -> Bool[np.ndarray, "labels"]:
    """For every label whether a detection of its class is its own; the best detection chooses first, its largest overlap."""
    counted = ~answers.ignored
    return findings_of(answers, counted, ~answers.uncertain, np.array([overlap])).taken[0] & counted


@compiled
def _accumulate(
    outcomes: np.ndarray, recordings: np.ndarray, weights: np.ndarray, totals: np.ndarray, recalls: np.ndarray, best: np.ndarray
) -> None:
    """Of detections of one class at one overlap, best first, into BEST, which is zero.

    Precision only falls between two right detections, so the wrong ones before each are summed by recording first: that, not the number
    of detections, is the work of a draw.
    """
    draws = weights.shape[1]
    wrong, right, reached = np.zeros(draws, np.int32), np.zeros(draws, np.int32), np.zeros(draws, np.int32)
    since, touched, count = np.zeros(len(weights), np.int32), np.zeros(len(weights), np.int64), 0  # wrong since the last right one
    for i in range(len(outcomes)):
        recording = recordings[i]
        if outcomes[i] < 0:
            if since[recording] == 0:
                touched[count] = recording
                count += 1
            since[recording] += 1
        elif outcomes[i] > 0:
            for place in range(count):
                times, row = since[touched[place]], weights[touched[place]]
                for draw in range(draws):
                    wrong[draw] += times * row[draw]
                since[touched[place]] = 0
            count = 0
            row = weights[recording]
            for draw in range(draws):
                if row[draw] == 0:
                    continue
                right[draw] += row[draw]
                while reached[draw] < len(recalls) and right[draw] / totals[draw] >= recalls[reached[draw]]:
                    reached[draw] += 1
                precision = right[draw] / (wrong[draw] + right[draw] + np.spacing(1.0))
                best[reached[draw] - 1, draw] = max(best[reached[draw] - 1, draw], precision)  # recall 0 is always reached
    for place in range(len(recalls) - 2, -1, -1):
        for draw in range(draws):
            best[place, draw] = max(best[place, draw], best[place + 1, draw])


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
    overlaps: np.ndarray, most: np.ndarray, shares: np.ndarray, outcomes: np.ndarray, hits: np.ndarray, taken: np.ndarray,
) -> None:  # fmt: skip
    """Detections of a class best first; SHARES is scratch space for the overlaps of one of them, the last three arrays are the result."""
    ranks = np.zeros(len(first), np.int64)
    classes = hits.shape[2]
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
                outcomes[level, i] = -1 if judged[i] else 0
                continue
            taken[level, low + chosen] = True
            if counted[low + chosen]:
                outcomes[level, i] = 1
                for limit in range(len(most)):
                    hits[limit, level, group % classes] += rank < most[limit]


def areas(boxes: Float32[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n"]:
    """In float64, as COCO's."""
    corners = boxes.astype(np.float64)
    return (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts])


def _boxes(parts: list[np.ndarray], what: str) -> np.ndarray:
    boxes = np.concatenate([np.zeros((0, 4), np.float32), *parts])
    wrong = ~(np.isfinite(boxes).all(axis=1) & (boxes[:, 2:] >= boxes[:, :2]).all(axis=1))
    if wrong.any():
        box = boxes[np.argmax(wrong)].tolist()
        raise InputError(f"scores: {what} have a box {box}; expected finite left <= right, top <= bottom; COCO would ignore it silently")
    return boxes


def _known(parts: list[np.ndarray | None], sizes: np.ndarray) -> np.ndarray:
    return _joined([np.full(size, np.nan) if part is None else part for part, size in zip(parts, sizes.tolist(), strict=True)], np.float64)


def _classes(ids: np.ndarray, classes: int, what: str) -> np.ndarray:
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < classes:
        raise InputError(f"scores: {what} have classes from {ids.min()} to {ids.max()}, but there are {classes}: 0 to {classes - 1}")
    return ids
