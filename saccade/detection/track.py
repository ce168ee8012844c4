"""DETECTIONS -> TRACKS: the same object keeps its id, at any rate. ByteTrack's two rounds; motion and lifetimes in microseconds."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64

from saccade.detection.boxes import iou
from saccade.detection.matching import best_pairs
from saccade.detection.motion import Motion, correct, from_centres, predict, start
from saccade.types import Detections, Ids, InputError, Times

FOR_SURE, FOR_UNSURE, FOR_NEW = 0.2, 0.5, 0.3  # least overlap of prediction and detection; strict where either may be nothing


class Tracks(NamedTuple):
    """The objects that are followed."""

    motion: Motion  # when last seen
    classes: Ids
    ids: Ids  # -1 = not confirmed yet
    first_us: Times
    seen_us: Times
    missed: Bool[np.ndarray, "n"]  # a frame has come since that didn't show it


def begin(detections: Detections) -> Tracks:
    """A new track for each."""
    count = len(detections)
    time_us = np.full(count, detections.time_us, np.int64)
    return Tracks(start(detections.boxes), detections.classes, np.full(count, -1), time_us, time_us, np.zeros(count, np.bool_))


def pick(tracks: Tracks, which: np.ndarray) -> Tracks:
    motion, *columns = tracks
    return Tracks(take(motion, which), *(column[which] for column in columns))


def take(motion: Motion, which: np.ndarray) -> Motion:
    return Motion(*(column[which] for column in motion))


def join(a: Tracks, b: Tracks) -> Tracks:
    motion = Motion(*(np.concatenate(pair) for pair in zip(a.motion, b.motion, strict=True)))
    return Tracks(motion, *(np.concatenate(pair) for pair in zip(a[1:], b[1:], strict=True)))


class Tracker:
    """Keeps what it follows from update to update: one for every stream, and `reset` between recordings.

    Sure detections (score >= HIGH) continue and start tracks. Unsure ones (>= LOW) only continue them: half-hidden objects score low,
    but so does noise. A track gets its id once it has been seen over CONFIRM_US, and ends when it was missed for longer than LOST_US;
    one that isn't confirmed, for longer than CONFIRM_US. Classes don't mix.
    """

    def __init__(self, *, high: float = 0.5, low: float = 0.1, confirm_us: int = 50_000, lost_us: int = 500_000) -> None:
        if not 0 <= low <= high <= 1:
            raise InputError(f"Tracker: low={low} and high={high} must be 0 <= low <= high <= 1")
        if confirm_us < 0 or lost_us < 0:
            raise InputError(f"Tracker: confirm_us={confirm_us} and lost_us={lost_us} must not be negative")
        self.high, self.low, self.confirm_us, self.lost_us = high, low, confirm_us, lost_us
        self.next_id = 0
        self.reset()

    def reset(self) -> None:
        """Forget all objects; time may start again. Ids go on, so that none is given twice."""
        self.tracks = begin(Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0))
        self.time_us: int | None = None

    def update(self, detections: Detections) -> Detections:
        """The same detections with the ids of their tracks; -1 for what isn't followed or not confirmed yet."""
        self._check(detections)
        tracks = self._alive(detections.time_us)
        elapsed_s = (detections.time_us - tracks.seen_us) / 1e6
        expected = predict(tracks.motion, elapsed_s)
        row_of = self._associate(tracks, expected, detections)

        seen = row_of >= 0
        now = detections[row_of[seen]]
        motion = correct(take(expected, seen), now.boxes, elapsed_s[seen])
        time_us = np.full(len(now), detections.time_us, np.int64)
        continued = pick(tracks, seen)._replace(motion=motion, seen_us=time_us, missed=np.zeros(len(now), np.bool_))
        unseen = pick(tracks, ~seen)._replace(missed=np.ones(len(seen) - len(now), np.bool_))

        fresh = detections.scores >= self.high
        fresh[row_of[seen]] = False
        started = np.flatnonzero(fresh)
        shown = self._confirm(join(continued, begin(detections[started])), detections.time_us)
        self.tracks, self.time_us = join(shown, unseen), detections.time_us
        ids = np.full(len(detections), -1, np.int64)
        ids[np.concatenate([row_of[seen], started])] = shown.ids
        return replace(detections, tracks=ids)

    def _check(self, detections: Detections) -> None:
        if self.time_us is not None and detections.time_us < self.time_us:
            raise InputError(
                f"Tracker: time runs backwards ({self.time_us} -> {detections.time_us} us); call reset() before another recording"
            )
        boxes = detections.boxes
        if not np.isfinite(boxes).all() or (boxes[:, 2:] <= boxes[:, :2]).any():
            raise InputError("Tracker: boxes must be finite with left < right and top < bottom; drop the others before")

    def _alive(self, time_us: int) -> Tracks:
        """A track that no frame has missed is alive however slow the rate."""
        patience_us = np.where(self.tracks.ids >= 0, self.lost_us, self.confirm_us)
        return pick(self.tracks, ~(self.tracks.missed & (time_us - self.tracks.seen_us > patience_us)))

    def _associate(self, tracks: Tracks, expected: Motion, detections: Detections) -> Int64[np.ndarray, "tracks"]:
        """The detection of each track, -1 for none: sure ones to confirmed tracks, unsure ones to those, sure ones to new tracks."""
        boxes = from_centres(expected.position)
        overlaps = iou(torch.from_numpy(boxes), torch.from_numpy(detections.boxes.astype(np.float64))).numpy()
        overlaps = np.where(tracks.classes[:, None] == detections.classes, overlaps, 0)
        sure, unsure = detections.scores >= self.high, (detections.scores >= self.low) & (detections.scores < self.high)
        confirmed = tracks.ids >= 0
        row_of = np.full(len(tracks.ids), -1, np.int64)
        rounds = ((confirmed, sure, FOR_SURE), (confirmed, unsure, FOR_UNSURE), (~confirmed, sure, FOR_NEW))
        for whose, which, least in rounds:
            free = which.copy()
            free[row_of[row_of >= 0]] = False
            rows, columns = np.flatnonzero(whose & (row_of < 0)), np.flatnonzero(free)
            if not (len(rows) and len(columns)):
                continue
            values = overlaps[np.ix_(rows, columns)]
            chosen = best_pairs(np.where(values >= least, values, 0))
            row_of[rows[chosen >= 0]] = columns[chosen[chosen >= 0]]
        return row_of

    def _confirm(self, tracks: Tracks, time_us: int) -> Tracks:
        ready = (tracks.ids < 0) & (time_us - tracks.first_us >= self.confirm_us)
        ids = tracks.ids.copy()
        ids[ready] = self.next_id + np.arange(ready.sum())
        self.next_id += int(ready.sum())
        return tracks._replace(ids=ids)
