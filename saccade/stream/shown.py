"""DECODED BOXES -> what is shown: those of at least a score and, of objects that are followed, lower ones; with the ids of tracks."""

from dataclasses import replace

from saccade.config import DetectorConfig
from saccade.detection.decode import Decoding
from saccade.detection.track import LOW, Tracker
from saccade.types import Detections, InputError


class Shown:
    """SCORE, else that of DECODING, else that of the weights: the one rule for streams, tiles and `saccade detect`."""

    def __init__(self, config: DetectorConfig, decoding: Decoding, score: float | None, tracker: bool | Tracker) -> None:
        asked = decoding.threshold if score is None else score
        self.score = config.least_score if asked is None else asked
        if not 0 <= self.score <= 1:
            raise InputError(f"stream: score={self.score} must be from 0 to 1")
        sure = max(self.score, config.least_score)  # what is shown at all can be followed, but not what only a low score lets through
        self.tracker = Tracker(high=sure, low=min(LOW, sure)) if tracker is True else tracker or None
        self.decoding = replace(decoding, threshold=self.score if self.tracker is None else min(self.score, self.tracker.low))

    def of(self, decoded: Detections) -> Detections:
        """DECODED is what `self.decoding` lets through."""
        if self.tracker is None:
            return decoded
        return self.tracker.update(decoded).shown(self.score)
