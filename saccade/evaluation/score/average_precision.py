"""LABELS + DETECTIONS -> SCORES: COCO's average precision, and the recall of objects that stand still."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool

from saccade.evaluation.run.answers import Answer
from saccade.evaluation.score.columns import Columns, areas, columns_of
from saccade.evaluation.score.library import tally_by_library
from saccade.evaluation.score.protocol import Protocol
from saccade.evaluation.score.tally import found, tally
from saccade.files import NAN
from saccade.types import Detections, InputError, Labels

STILL_US = 250_000  # objects without events of their own for longer than this are seen by memory alone
SIZES = ((0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))  # square pixels, both ends included: COCO's small, medium, large

Method = Literal["compiled", "library"]


@dataclass(frozen=True)
class Scores:
    """In percent; NaN where there is nothing to count."""

    mAP: float  # COCO's: mean over IoU 0.50 to 0.95 and over the classes that have labels
    ap50: float
    ap75: float
    classes: dict[str, float]  # mAP of each
    recall: float  # of all labels: a detection of their class overlaps by at least half
    recall_still: float  # of labels that have been still for more than a quarter of a second
    frames: int
    labels: int
    still: int
    ap_small: float = NAN  # mAP of boxes up to 32 x 32 pixels in area ...
    ap_medium: float = NAN
    ap_large: float = NAN  # ... and from 96 x 96 on
    ar1: float = NAN  # recall, mean over the overlaps and classes, by the best detection of each class and frame ...
    ar10: float = NAN
    ar100: float = NAN  # ... and by the best hundred
    ignored: int = 0  # labels whose finding is neither right nor wrong


def average_precision(
    labels: Sequence[Labels], detections: Sequence[Detections], classes: Sequence[str], *, method: Method = "compiled"
) -> Scores:
    """Of labelled frames, each with its labels (maybe none) and its detections; all of them count."""
    if len(labels) != len(detections):
        raise InputError(f"average_precision: {len(labels)} labelled frames, but detections of {len(detections)}")
    answers = [Answer("", guess.time_us, truth, guess) for truth, guess in zip(labels, detections, strict=True)]
    return scores_of(columns_of(answers, len(classes)), classes, method)


def score(answers: Sequence[Answer], classes: Sequence[str], protocol: Protocol, *, method: Method = "compiled") -> Scores:
    """Of all that counts under the protocol. Its ranking, threshold and NMS were applied when the detections were decoded.

    Equal scores rank in the order of the answers, as in COCO's own tool: give them in one order to get one number.
    """
    return scores_of(columns_of(answers, len(classes), protocol), classes, method)


def score_late(answers: Sequence[Answer], classes: Sequence[str], protocol: Protocol) -> Scores | None:
    """Latency-aware: labels against what was ready by then. None = nobody asked for that."""
    late = [replace(answer, detections=answer.late) for answer in answers if answer.late is not None]
    if not late:
        return None
    if len(late) < len(answers):
        raise InputError(
            f"score_late: {len(answers) - len(late)} of {len(answers)} answers have late=None; "
            "an instant at which nothing was ready yet has late detections without rows"
        )
    return score(late, classes, protocol)


def scores_of(columns: Columns, classes: Sequence[str], method: Method = "compiled") -> Scores:
    """Method: `library` works out precision and recall by faster-coco-eval, to compare with."""
    if method not in ("compiled", "library"):
        raise InputError(f"scores: unknown method={method!r}; expected compiled or library")
    count = tally if method == "compiled" else tally_by_library
    counted, judged = ~columns.ignored, ~columns.uncertain
    every = count(columns, counted, judged)
    label_areas, detection_areas = areas(columns.labels), areas(columns.boxes)
    sizes = [
        count(columns, counted & _within(label_areas, limits), judged & _within(detection_areas, limits)).precision for limits in SIZES
    ]
    hit, still = found(columns)[counted], (columns.still_us > STILL_US)[counted]
    return Scores(
        mAP=percent(every.precision),
        ap50=percent(every.precision[0]),
        ap75=percent(every.precision[5]),
        classes={name: percent(every.precision[:, :, index]) for index, name in enumerate(classes)},
        recall=percent(hit),
        recall_still=percent(hit[still]),
        frames=columns.frames,
        labels=len(hit),
        still=int(still.sum()),
        ap_small=percent(sizes[0]),
        ap_medium=percent(sizes[1]),
        ap_large=percent(sizes[2]),
        ar1=percent(every.recall[0]),
        ar10=percent(every.recall[1]),
        ar100=percent(every.recall[2]),
        ignored=int(columns.ignored.sum()),
    )


def found_labels(labels: Labels, detections: Detections) -> Bool[np.ndarray, "labels"]:
    """For every label of a frame whether a detection of its class is its own, overlapping it by at least half."""
    classes = 1 + max(int(ids.max(initial=0)) for ids in (labels.classes, detections.classes))
    order = np.argsort(labels.classes, kind="stable")  # of columns
    result = np.zeros(len(labels), np.bool_)
    result[order] = found(columns_of([Answer("", detections.time_us, labels, detections)], classes))
    return result


def percent(values: np.ndarray) -> float:
    """Mean of the values that aren't NaN, NaN if there is none."""
    known = values[~np.isnan(values)]
    return 100 * float(known.mean()) if len(known) else NAN


def _within(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return (values >= limits[0]) & (values <= limits[1])
