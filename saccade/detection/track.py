"""DETECTIONS -> TRACKS: the same object keeps its id, at any rate. ByteTrack's two rounds over a Kalman filter of constant velocity.

Written by hand: trackers of libraries count frames; here motion is per second and lifetimes are in microseconds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from saccade.detection.matching import best_pairs, iou, iou_of, mutual_pairs
from saccade.machine import compiled
from saccade.types import Boxes, Detections, Ids, InputError, Times

Centres = Float64[np.ndarray, "n 4"]  # centre x, y, width, height in pixels

LOW = 0.1  # least score of a detection that goes on with a track
FOR_SURE, FOR_UNSURE, FOR_NEW = 0.2, 0.5, 0.3  # least IoU of prediction and detection; strict where either may be noise ...
FOR_OTHER = 0.65  # ... and where their classes differ: what is a two-wheeler from afar may be a car when it is near
OTHER_COUNTS = 0.5  # such an overlap counts so much less, so that detections of the track's own class go first
VOTES_S = 0.3  # time constant in which a track forgets what it was taken for

# Standard deviations in sides of the box, of x, y, width, height. Guesses; with them the tests follow boxes that move by up to ten sides
# per second, at 20 Hz and at 200 Hz.
MEASURED = 0.05  # of a detection
STARTS = np.array([4.0, 4.0, 0.5, 0.5])  # of the unknown velocity at the start, per second
WANDERS = np.array([2.0, 2.0, 0.25, 0.25])  # of the velocity's change in one second
WINDOW_S = 0.05  # frames nearer in time than this share events, so their errors are correlated: n within a window count as one


class Motion(NamedTuple):
    """Kalman estimate of n boxes at the time each was last seen. The axes are independent: four filters of two values, not one of eight."""

    position: Centres
    velocity: Centres  # per second
    position_variance: Centres
    covariance: Centres  # of position and velocity
    velocity_variance: Centres


def start(boxes: Boxes) -> Motion:
    """The estimate after the first detection: velocity unknown."""
    position = to_centres(boxes)
    side, zero = sides(position), np.zeros_like(position)
    return Motion(position, zero, zero + (MEASURED * side) ** 2, zero, (STARTS * side) ** 2)


def predict(motion: Motion, elapsed_s: Float64[np.ndarray, "n"]) -> Motion:
    """The estimate ELAPSED_S later. Noise of the velocity is integrated over time, so that two half steps are one step."""
    return Motion(*_predict(*motion, elapsed_s))


@compiled
def _predict(position, velocity, spread, mixed, own, elapsed_s):
    """Compiled, as `_correct`: of a few objects, numpy spends most of its time between its operations."""
    moved, wider, tied, faster = (np.empty_like(position), np.empty_like(position), np.empty_like(position), np.empty_like(position))
    for i in range(len(position)):
        dt, side = elapsed_s[i], (position[i, 2] + position[i, 3]) / 2
        for axis in range(4):
            noise = (WANDERS[axis] * side) ** 2
            at = position[i, axis] + dt * velocity[i, axis]
            if axis > 1:  # sides of a shrinking box, lost for long, would become negative
                at = min(max(at, 0.5 * position[i, axis]), 2 * position[i, axis])
            moved[i, axis] = at
            wider[i, axis] = spread[i, axis] + 2 * dt * mixed[i, axis] + dt**2 * own[i, axis] + noise * dt**3 / 3
            tied[i, axis] = mixed[i, axis] + dt * own[i, axis] + noise * dt**2 / 2
            faster[i, axis] = own[i, axis] + noise * dt
    return moved, velocity, wider, tied, faster


def correct(motion: Motion, boxes: Boxes, elapsed_s: Float64[np.ndarray, "n"]) -> Motion:
    """The estimate after BOXES were detected, ELAPSED_S after the detections before; MOTION is the prediction for now."""
    return Motion(*_correct(*motion, to_centres(boxes), elapsed_s))


@compiled
def _correct(position, velocity, spread, mixed, own, seen, elapsed_s):
    at, speed, narrower, tied, surer = (
        np.empty_like(position), np.empty_like(position), np.empty_like(position), np.empty_like(position), np.empty_like(position)
    )  # fmt: skip
    for i in range(len(position)):
        side = (seen[i, 2] + seen[i, 3]) / 2
        variance = (MEASURED * side) ** 2 * max(WINDOW_S / max(elapsed_s[i], 1e-6), 1.0)
        for axis in range(4):
            whole, error = spread[i, axis] + variance, seen[i, axis] - position[i, axis]
            gain, velocity_gain = spread[i, axis] / whole, mixed[i, axis] / whole
            at[i, axis] = position[i, axis] + gain * error
            speed[i, axis] = velocity[i, axis] + velocity_gain * error
            narrower[i, axis] = (1 - gain) * spread[i, axis]
            tied[i, axis] = (1 - gain) * mixed[i, axis]
            surer[i, axis] = own[i, axis] - velocity_gain * mixed[i, axis]
    return at, speed, narrower, tied, surer


def sides(position: Centres) -> Float64[np.ndarray, "n 1"]:
    """Mean of width and height, the unit of all noise: large boxes move and err by more pixels."""
    return (position[:, 2:3] + position[:, 3:]) / 2


def to_centres(boxes: Boxes) -> Centres:
    low, high = boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64)
    return np.concatenate([(low + high) / 2, high - low], 1)


def from_centres(position: Centres) -> Centres:
    half = position[:, 2:] / 2
    return np.concatenate([position[:, :2] - half, position[:, :2] + half], 1)


class TrackStates(NamedTuple):
    """The objects that are followed."""

    motion: Motion  # when last seen
    classes: Ids  # with the most votes
    votes: Float64[np.ndarray, "n classes"]  # scores of its detections by class, summed over time
    ids: Ids  # -1 = not confirmed yet
    first_us: Times
    seen_us: Times
    missed: Bool[np.ndarray, "n"]  # not detected in the latest frame


def _begin(detections: Detections, classes: int) -> TrackStates:
    """A new track for each; CLASSES is how many there are."""
    count = len(detections)
    time_us = np.full(count, detections.time_us, np.int64)
    votes = np.zeros((count, classes))
    votes[np.arange(count), detections.classes] = detections.scores
    nothing = np.zeros(count, np.bool_)
    return TrackStates(start(detections.boxes), detections.classes, votes, np.full(count, -1), time_us, time_us, nothing)


def _elect(tracks: TrackStates, detections: Detections, elapsed_s: Float64[np.ndarray, "n"]) -> TrackStates:
    """The tracks after each was seen as one of DETECTIONS, ELAPSED_S after it was last seen: votes count by time, not by frames."""
    votes, classes = _vote(tracks.votes, detections.classes, detections.scores, elapsed_s)
    return tracks._replace(votes=votes, classes=classes)


@compiled
def _vote(votes, classes, scores, elapsed_s):
    after, most = np.empty_like(votes), np.empty_like(classes)
    for i in range(len(votes)):
        kept = np.exp(-elapsed_s[i] / VOTES_S)
        for k in range(votes.shape[1]):
            after[i, k] = kept * votes[i, k]
        after[i, classes[i]] += scores[i] * min(elapsed_s[i] / WINDOW_S, 1.0)
        most[i] = np.argmax(after[i])
    return after, most


def _pick(tracks: TrackStates, which: np.ndarray) -> TrackStates:
    motion, *columns = tracks
    return TrackStates(_take(motion, which), *(column[which] for column in columns))


def _take(motion: Motion, which: np.ndarray) -> Motion:
    return Motion(*(column[which] for column in motion))


def _join(a: TrackStates, b: TrackStates) -> TrackStates:
    if not (len(a.ids) and len(b.ids)):  # most frames start and miss nothing
        return a if len(a.ids) else b
    motion = Motion(*(np.concatenate(pair) for pair in zip(a.motion, b.motion, strict=True)))
    return TrackStates(motion, *(np.concatenate(pair) for pair in zip(a[1:], b[1:], strict=True)))


@compiled
def _corners(position: np.ndarray) -> np.ndarray:
    corners = np.empty_like(position)
    for i in range(len(position)):
        for side in range(2):
            half = position[i, 2 + side] / 2
            corners[i, side], corners[i, 2 + side] = position[i, side] - half, position[i, side] + half
    return corners


@compiled
def _clear_pairs(
    position: np.ndarray, track_classes: np.ndarray, ids: np.ndarray, boxes: np.ndarray, classes: np.ndarray, sure: np.ndarray,
    unsure: np.ndarray,
) -> tuple[np.ndarray, bool]:  # fmt: skip
    """`Tracker._associate_optimally` for frames in which no pair has alternatives on both sides, and whether this is one, as most are."""
    row_of, free = np.full(len(ids), -1, np.int64), np.ones(len(sure), np.bool_)
    overlaps = iou_of(_corners(position), boxes.astype(np.float64))
    for turn in range(3):
        least = FOR_SURE if turn == 0 else FOR_UNSURE if turn == 1 else FOR_NEW
        values = np.zeros(overlaps.shape)
        for i in range(len(ids)):
            if row_of[i] >= 0 or (ids[i] >= 0) == (turn == 2):
                continue
            for j in range(len(free)):
                wanted = unsure[j] if turn == 1 else sure[j]
                if wanted and free[j] and track_classes[i] == classes[j] and overlaps[i, j] >= least:
                    values[i, j] = overlaps[i, j]
                elif wanted and free[j] and track_classes[i] != classes[j] and overlaps[i, j] >= FOR_OTHER:
                    values[i, j] = OTHER_COUNTS * overlaps[i, j]
        chosen, _, is_best = mutual_pairs(values)
        if not is_best:
            return row_of, False
        for i in range(len(ids)):
            if chosen[i] >= 0:
                row_of[i] = chosen[i]
                free[chosen[i]] = False
    return row_of, True


@compiled
def _have_area(boxes: np.ndarray) -> bool:
    sound = True
    for left, top, right, bottom in boxes:
        sound &= -np.inf < left < right < np.inf and -np.inf < top < bottom < np.inf
    return sound


class Tracker:
    """Keeps its tracks from update to update: use one for every stream, and `reset` it between recordings.

    Sure detections (score >= HIGH) continue and start tracks. Unsure ones (>= LOW) only continue them: half-hidden objects score low,
    but so does noise. A track gets its id once it has been seen over CONFIRM_US, and ends when it was missed for longer than LOST_US;
    one that isn't confirmed, for longer than CONFIRM_US. A track goes on with a detection of another class only where the boxes agree
    well; its detections are then of the class that it was taken for longest and most surely.
    """

    def __init__(self, *, high: float = 0.5, low: float = LOW, confirm_us: int = 50_000, lost_us: int = 500_000) -> None:
        if not 0 <= low <= high <= 1:
            raise InputError(f"Tracker: low={low} and high={high} must be 0 <= low <= high <= 1")
        if confirm_us < 0 or lost_us < 0:
            raise InputError(f"Tracker: confirm_us={confirm_us} and lost_us={lost_us} must not be negative")
        self.high, self.low, self.confirm_us, self.lost_us = high, low, confirm_us, lost_us
        self.next_id = 0
        self.reset()
        best_pairs(np.ones((2, 2)))  # loads scipy now, not when two objects first meet in a live stream

    def reset(self) -> None:
        """Forget all objects; time may start again. Ids go on, so that none is given twice."""
        self.tracks = _begin(Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0), 1)
        self.time_us: int | None = None

    def update(self, detections: Detections) -> Detections:
        """The same detections with ids and classes of their tracks; what isn't followed or confirmed yet has id -1 and its own class."""
        self._check(detections)
        tracks = self._widened(self._alive(detections.time_us), detections)
        elapsed_s = (detections.time_us - tracks.seen_us) / 1e6
        expected = predict(tracks.motion, elapsed_s)
        row_of = self._associate(tracks, expected, detections)

        seen = row_of >= 0
        if all_seen := bool(seen.all()):  # as in most frames; picking them out takes as long as all the rest
            rows, kept, known_s = row_of, tracks, elapsed_s
        else:
            rows, kept, known_s, expected = row_of[seen], _pick(tracks, seen), elapsed_s[seen], _take(expected, seen)
        count = len(rows)
        motion = correct(expected, detections.boxes[rows], known_s)
        kept = _elect(kept, detections[rows], known_s)
        continued = kept._replace(motion=motion, seen_us=np.full(count, detections.time_us, np.int64), missed=np.zeros(count, np.bool_))

        fresh = detections.scores >= self.high
        fresh[rows] = False
        started = np.flatnonzero(fresh)
        if len(started):
            continued = _join(continued, _begin(detections[started], tracks.votes.shape[1]))
        shown = self._confirm(continued, detections.time_us)
        self.tracks, self.time_us = shown, detections.time_us
        if not all_seen:
            self.tracks = _join(shown, _pick(tracks, ~seen)._replace(missed=np.ones(len(seen) - count, np.bool_)))
        ids = np.full(len(detections), -1, np.int64)
        ids[rows], ids[started] = shown.ids[:count], shown.ids[count:]
        classes = detections.classes.copy()
        classes[rows] = np.where(shown.ids[:count] >= 0, shown.classes[:count], classes[rows])
        return Detections(detections.boxes, detections.scores, classes, detections.time_us, ids)

    def _check(self, detections: Detections) -> None:
        if self.time_us is not None and detections.time_us < self.time_us:
            raise InputError(
                f"Tracker: time runs backwards ({self.time_us} -> {detections.time_us} us); call reset() before another recording"
            )
        boxes = detections.boxes
        if not _have_area(boxes):
            raise InputError("Tracker: boxes must be finite with left < right and top < bottom; drop the others before")

    def _alive(self, time_us: int) -> TrackStates:
        """Without tracks that were missed for too long; time alone ends none, however low the rate."""
        patience_us = np.where(self.tracks.ids >= 0, self.lost_us, self.confirm_us)
        ended = self.tracks.missed & (time_us - self.tracks.seen_us > patience_us)
        return _pick(self.tracks, ~ended) if ended.any() else self.tracks

    def _widened(self, tracks: TrackStates, detections: Detections) -> TrackStates:
        """With room for votes of every class that was detected so far."""
        more = int(detections.classes.max(initial=-1)) + 1 - tracks.votes.shape[1]
        return tracks if more <= 0 else tracks._replace(votes=np.pad(tracks.votes, ((0, 0), (0, more))))

    def _associate(self, tracks: TrackStates, expected: Motion, detections: Detections) -> Int64[np.ndarray, "tracks"]:
        """The detection of each track, -1 for none: sure ones to confirmed tracks, unsure ones to those, sure ones to new tracks."""
        sure, unsure = detections.scores >= self.high, (detections.scores >= self.low) & (detections.scores < self.high)
        row_of, is_best = _clear_pairs(expected.position, tracks.classes, tracks.ids, detections.boxes, detections.classes, sure, unsure)
        return row_of if is_best else self._associate_optimally(tracks, expected, detections, sure, unsure)

    def _associate_optimally(
        self, tracks: TrackStates, expected: Motion, detections: Detections, sure: np.ndarray, unsure: np.ndarray
    ) -> Int64[np.ndarray, "tracks"]:
        """Where objects meet, so that a pair has alternatives on both sides; the same rounds."""
        boxes = from_centres(expected.position)
        overlaps, same = iou(boxes, detections.boxes), tracks.classes[:, None] == detections.classes
        confirmed, free = tracks.ids >= 0, np.ones(len(detections), np.bool_)
        row_of = np.full(len(tracks.ids), -1, np.int64)
        rounds = ((confirmed, sure, FOR_SURE), (confirmed, unsure, FOR_UNSURE), (~confirmed, sure, FOR_NEW))
        for whose, which, least in rounds:
            rows, columns = np.flatnonzero(whose & (row_of < 0)), np.flatnonzero(which & free)
            if not (len(rows) and len(columns)):
                continue
            values, alike = overlaps[rows[:, None], columns], same[rows[:, None], columns]
            values = np.where(values >= np.where(alike, least, FOR_OTHER), values, 0)
            chosen = best_pairs(np.where(alike, values, OTHER_COUNTS * values))
            made = chosen >= 0
            row_of[rows[made]] = columns[chosen[made]]
            free[columns[chosen[made]]] = False
        return row_of

    def _confirm(self, tracks: TrackStates, time_us: int) -> TrackStates:
        ready = (tracks.ids < 0) & (time_us - tracks.first_us >= self.confirm_us)
        if not ready.any():
            return tracks
        ids = tracks.ids.copy()
        ids[ready] = self.next_id + np.arange(ready.sum())
        self.next_id += int(ready.sum())
        return tracks._replace(ids=ids)
