"""ANSWERS -> the worst mistakes: false detections of high score, and large visible objects that were missed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from saccade.evaluation.result import Answer
from saccade.evaluation.score.average_precision import found_labels
from saccade.evaluation.score.protocol import Protocol, judge
from saccade.types import Detections, Labels

SURE = 0.3  # detections below this score aren't drawn, and don't count as found
APART_US = 1_000_000  # at most one false detection per recording in this time, and one miss per track: else one object would fill the page


@dataclass(frozen=True, eq=False)
class Mistake:
    """One wrong box, with all the others of its instant."""

    kind: Literal["false", "missed"]
    recording: str
    instant_us: int
    labels: Labels
    detections: Detections  # those that are sure enough to be drawn, the wrong one too
    index: int  # of the wrong detection, or of the missed label
    weight: float  # the worse, the more: the score, or the visible area in pixels

    @property
    def class_index(self) -> int:
        return int((self.detections if self.kind == "false" else self.labels).classes[self.index])

    @property
    def cause(self) -> tuple[str, str, int]:
        """Equal for mistakes that are probably one: about the same track, or, without a track, in the same second."""
        track = int(self.labels.tracks[self.index]) if self.kind == "missed" else -1
        return (self.recording, "track", track) if track >= 0 else (self.recording, "time", self.instant_us // APART_US)


def worst_mistakes(
    answers: Iterable[Answer], number: int = 8, *, protocol: Protocol | None = None, sure: float = SURE
) -> tuple[list[Mistake], list[Mistake]]:
    """The false detections of the highest score and the missed labels of the largest visible area, NUMBER of each, worst first.

    A detection is false if it overlaps no label of its class by half; a label is missed if no detection of at least SURE is its own. What
    the protocol ignores is no mistake.
    """
    false, missed = _Worst(number), _Worst(number)
    for answer in answers:
        judged = judge(answer, protocol)
        if judged is None:
            continue
        said = judged.detections.scores >= sure
        shown, labels = judged.detections[said], judged.labels
        common = (answer.recording, answer.instant_us, labels, shown)
        for row in np.flatnonzero(~judged.uncertain[said]).tolist():  # best first
            alone = shown[row : row + 1]
            if not (found_labels(labels, alone).any() or found_labels(judged.ignored, alone).any()):
                false.offer(Mistake("false", *common, row, float(shown.scores[row])))
                break
        lost = np.flatnonzero(~found_labels(labels, shown))
        for row, area in zip(lost.tolist(), _area(labels)[lost].tolist(), strict=True):
            missed.offer(Mistake("missed", *common, row, area))
    return false.best(), missed.best()


class _Worst:
    """Keeps the NUMBER worst mistakes, one per cause, of any number offered, in bounded memory."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._kept: dict[tuple[str, str, int], Mistake] = {}

    def offer(self, mistake: Mistake) -> None:
        before = self._kept.get(mistake.cause)
        if before is None or mistake.weight > before.weight:
            self._kept[mistake.cause] = mistake
        if len(self._kept) > 4 * self._number:
            self._kept = {one.cause: one for one in self.best()}

    def best(self) -> list[Mistake]:
        ordered = sorted(self._kept.values(), key=lambda one: (-one.weight, one.recording, one.instant_us))
        return ordered[: self._number]


def _area(labels: Labels) -> np.ndarray:
    sides = labels.boxes[:, 2:].astype(np.float64) - labels.boxes[:, :2]
    return sides.prod(axis=1) * (1 if labels.visible is None else labels.visible)
