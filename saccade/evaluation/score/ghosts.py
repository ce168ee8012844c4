"""ANSWERS -> GHOSTS: boxes that outlive their object, and boxes where nothing is."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from saccade.detection.matching import iou
from saccade.evaluation.result import Answer, Ghosts
from saccade.evaluation.score.mistakes import SURE
from saccade.files import NAN
from saccade.types import Detections, Labels

LEAST_IOU = 0.3  # with the object that left, and below it with all that are there
LAST_US = 500_000  # a ghost stands at one of the object's places of this time: of what leaves the picture the last box is a sliver


def ghosts(answers: Sequence[Answer]) -> Ghosts:
    """Of answers recording by recording, in the order of time; the tracks of both labels and ignored ones are looked at."""
    recordings = [list(own) for _, own in groupby(answers, key=lambda answer: answer.recording)]
    lasted_s = np.array([seconds for own in recordings for seconds in _outlived_s(own)])
    empty = [answer for answer in answers if not len(answer.labels) and not len(_ignored(answer))]
    boxes = sum(int((answer.detections.scores >= SURE).sum()) for answer in empty)
    return Ghosts(
        ended=len(lasted_s),
        share=100 * float((lasted_s > 0).mean()) if len(lasted_s) else NAN,
        median_s=float(np.median(lasted_s)) if len(lasted_s) else NAN,
        p95_s=float(np.percentile(lasted_s, 95)) if len(lasted_s) else NAN,
        empty_box_s=60 * boxes / len(empty) if empty else NAN,
    )


def _outlived_s(answers: Sequence[Answer]) -> list[float]:
    """Of one recording: for every track that ends before it, the seconds until the last instant of an unbroken row with a ghost."""
    places: dict[int, list[tuple[int, int, np.ndarray]]] = {}  # track -> number of the instant, class, box
    for number, answer in enumerate(answers):
        for labels in (answer.labels, _ignored(answer)):
            for track, kind, box in zip(labels.tracks.tolist(), labels.classes.tolist(), labels.boxes, strict=True):
                if track >= 0:
                    places.setdefault(track, []).append((number, kind, box))
    unclaimed: dict[int, Detections] = {}
    result = []
    for seen in places.values():
        last, kind, _ = seen[-1]
        if last + 1 == len(answers):
            continue
        ended_us = answers[last].instant_us
        near = np.stack([box for number, _, box in seen if answers[number].instant_us > ended_us - LAST_US])
        number = last + 1
        while number < len(answers):
            if number not in unclaimed:
                unclaimed[number] = _unclaimed(answers[number])
            there = unclaimed[number]
            if not (iou(there.boxes[there.classes == kind], near) >= LEAST_IOU).any():
                break
            number += 1
        result.append((answers[number - 1].instant_us - ended_us) / 1e6)
    return result


def _unclaimed(answer: Answer) -> Detections:
    """Sure detections that overlap nothing that is there."""
    sure = answer.detections[answer.detections.scores >= SURE]
    there = np.concatenate([answer.labels.boxes, _ignored(answer).boxes])
    return sure[iou(sure.boxes, there).max(axis=1, initial=0.0) < LEAST_IOU]


def _ignored(answer: Answer) -> Labels:
    return Labels.empty() if answer.ignored is None else answer.ignored
