"""ANSWERS -> METRICS: COCO's average precision, the recall of objects that stand still, and both by stillness and by speed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
from jaxtyping import Bool, Float64

from saccade.evaluation.result import Answer, Metrics, Part
from saccade.evaluation.score.coco import FlatAnswers, areas, flatten, found, precision_recall
from saccade.evaluation.score.protocol import Protocol
from saccade.files import NAN
from saccade.types import Detections, InputError, Labels

STILL_US = 250_000  # objects without events of their own for longer than this are seen by memory alone
SIZES = ((0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))  # square pixels, both ends included: COCO's small, medium, large
STILL_EDGES_S = (0.0, 0.05, 0.25, 0.5, 1.0, 2.0, inf)
SPEED_EDGES_PX_S = (0.0, 1.0, 10.0, 25.0, 50.0, 100.0, inf)


def average_precision(labels: Sequence[Labels], detections: Sequence[Detections], classes: Sequence[str]) -> Metrics:
    """Of labelled frames, each with its labels (maybe none) and its detections; all of them count."""
    if len(labels) != len(detections):
        raise InputError(f"average_precision: {len(labels)} labelled frames, but detections of {len(detections)}")
    answers = [Answer("", guess.time_us, truth, guess) for truth, guess in zip(labels, detections, strict=True)]
    return metrics_of(flatten(answers, len(classes)), classes)


def score(answers: Sequence[Answer], classes: Sequence[str], protocol: Protocol) -> Metrics:
    """Of all that counts under the protocol. Its ranking, threshold and NMS were applied when the detections were decoded.

    Equal scores rank in the order of the answers, as in COCO's own tool: give them in one order to get one number.
    """
    return metrics_of(flatten(answers, len(classes), protocol), classes)


def score_late(answers: Sequence[Answer], classes: Sequence[str], protocol: Protocol) -> Metrics | None:
    """Latency-aware: labels against what was ready by then. None if no latency was requested."""
    late = [replace(answer, detections=answer.late) for answer in answers if answer.late is not None]
    if not late:
        return None
    if len(late) < len(answers):
        raise InputError(
            f"score_late: {len(answers) - len(late)} of {len(answers)} answers have late=None; "
            "an instant at which nothing was ready yet has late detections without rows"
        )
    return score(late, classes, protocol)


def metrics_of(answers: FlatAnswers, classes: Sequence[str]) -> Metrics:
    """All numbers of the answers of one condition, or of one validation."""
    counted, judged = ~answers.ignored, ~answers.uncertain
    every = precision_recall(answers, counted, judged)
    label_areas, detection_areas = areas(answers.labels), areas(answers.boxes)
    sizes = [
        precision_recall(answers, counted & _within(label_areas, limits), judged & _within(detection_areas, limits)).precision
        for limits in SIZES
    ]
    hit, still = found(answers)[counted], (answers.still_us > STILL_US)[counted]
    return Metrics(
        mAP=percent(every.precision),
        ap50=percent(every.precision[0]),
        ap75=percent(every.precision[5]),
        classes={name: percent(every.precision[:, :, index]) for index, name in enumerate(classes)},
        recall=percent(hit),
        recall_still=percent(hit[still]),
        frames=answers.frames,
        labels=len(hit),
        still=int(still.sum()),
        ap_small=percent(sizes[0]),
        ap_medium=percent(sizes[1]),
        ap_large=percent(sizes[2]),
        ar1=percent(every.recall[0]),
        ar10=percent(every.recall[1]),
        ar100=percent(every.recall[2]),
        ignored=int(answers.ignored.sum()),
    )


def found_labels(labels: Labels, detections: Detections) -> Bool[np.ndarray, "labels"]:
    """For every label of a frame whether a detection of its class is its own, overlapping it by at least half."""
    classes = 1 + max(int(ids.max(initial=0)) for ids in (labels.classes, detections.classes))
    order = np.argsort(labels.classes, kind="stable")  # that of `flatten`
    result = np.zeros(len(labels), np.bool_)
    result[order] = found(flatten([Answer("", detections.time_us, labels, detections)], classes))
    return result


def parts_by_still(answers: FlatAnswers, edges_s: Sequence[float] = STILL_EDGES_S) -> tuple[Part, ...]:
    """By the seconds since the object last made events of its own; empty if no label has that."""
    return parts(answers, answers.still_us / 1e6, edges_s)


def parts_by_speed(answers: FlatAnswers, edges_px_s: Sequence[float] = SPEED_EDGES_PX_S) -> tuple[Part, ...]:
    """By the object's own speed in pixels per second; empty if no label has it."""
    return parts(answers, answers.speed_px_s, edges_px_s)


def parts(answers: FlatAnswers, values: Float64[np.ndarray, "labels"], edges: Sequence[float]) -> tuple[Part, ...]:
    """The labels whose value lies in [low, high), for every two neighbouring edges.

    AP ignores all other labels: a detection that finds one of them is neither right nor wrong, and one that finds none is wrong in every
    part. Recall is the share of the part in what is found of all labels together, so the parts' recalls add up to the whole one's.
    """
    if len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise InputError(f"parts: edges {tuple(edges)} must rise, and be two at least")
    counted = ~answers.ignored
    if np.isnan(values[counted]).all():
        return ()
    hit, judged = found(answers), ~answers.uncertain
    result = []
    for low, high in pairwise(edges):
        own = counted & (values >= low) & (values < high)
        result.append(Part(low, high, percent(precision_recall(answers, own, judged).precision), percent(hit[own]), int(own.sum())))
    return tuple(result)


def curves(answers: FlatAnswers, classes: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """For every class that has labels the best precision (0 to 1) at recall 0, 0.01 ... 1 or above, at an overlap of one half."""
    precision = precision_recall(answers, ~answers.ignored, ~answers.uncertain).precision[0]
    return {name: tuple(precision[:, index].tolist()) for index, name in enumerate(classes) if not np.isnan(precision[0, index])}


def percent(values: np.ndarray) -> float:
    """Mean of the values that aren't NaN, NaN if there is none."""
    known = values[~np.isnan(values)]
    return 100 * float(known.mean()) if len(known) else NAN


def _within(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return (values >= limits[0]) & (values <= limits[1])
