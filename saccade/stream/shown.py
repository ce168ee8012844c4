"""DECODED BOXES -> what is shown of them: those of at least a score, with the ids of tracks, which go on through lower ones."""

from dataclasses import replace

from saccade.config import DetectorConfig
from saccade.detection.decode import Decoding
from saccade.detection.track import Tracker
from saccade.types import Detections, InputError


class Shown:
    """SCORE, else that of DECODING, else that of the weights: the one rule for streams, tiles and `saccade detect`."""

    def __init__(self, config: DetectorConfig, decoding: Decoding, score: float | None, tracker: bool | Tracker) -> None:
        asked = decoding.threshold if score is None else score
        self.score = config.least_score if asked is None else asked
        if not 0 <= self.score <= 1:
            raise InputError(f"stream: score={self.score} must be from 0 to 1")
        self.tracker = Tracker() if tracker is True else tracker or None
        self.decoding = replace(decoding, threshold=self.score if self.tracker is None else min(self.score, self.tracker.low))

    def of(self, decoded: Detections) -> Detections:
        """DECODED is what `self.decoding` lets through."""
        if self.tracker is None:
            return decoded
        found = self.tracker.update(decoded)
        shown = found.scores >= self.score
        return found if shown.all() else found[shown]
