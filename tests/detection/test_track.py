"""Tracks: an object keeps its id at any rate, through gaps, crossings and low scores; nobody else gets it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from saccade.detection.track import Tracker, correct, predict, start
from saccade.types import Detections, InputError

SECOND = 1_000_000


class Thing(NamedTuple):
    path: Callable[[float], tuple[float, float]]  # centre at a time in seconds
    size: tuple[float, float] = (30.0, 20.0)
    kind: int = 0
    start_us: int = 0
    end_us: int = 4 * SECOND
    hidden_us: tuple[int, int] = (0, 0)
    dim_us: tuple[int, int] = (0, 0)  # scores are low


STREET = [
    Thing(lambda t: (20 + 40 * t, 100)),
    Thing(lambda t: (300 - 60 * t, 105), kind=1, start_us=200_000),  # through the first
    Thing(lambda t: (250, 20 + 5 * t + 12 * t * t), start_us=400_000),  # accelerates, and grows past it below
    Thing(lambda t: (40 + 50 * t, 200), start_us=600_000, hidden_us=(2 * SECOND, 2 * SECOND + 350_000)),
    Thing(lambda t: (60 + 30 * np.sin(3 * t), 30), size=(24, 24), start_us=800_000),  # to and fro
    Thing(lambda t: (150 + 30 * t, 160), start_us=SECOND, dim_us=(1_800_000, 2_900_000)),
    Thing(lambda t: (10 + 300 * (t - 2.5), 60), size=(40, 30), start_us=2_500_000, end_us=3_500_000),  # fast
]


def steps(rate_hz: float, start_us: int = 0, end_us: int = 4 * SECOND) -> list[int]:
    return list(range(start_us, end_us, round(1e6 / rate_hz)))


def irregular(seed: int) -> list[int]:
    return np.cumsum(np.random.default_rng(seed).integers(2_000, 70_000, 200)).tolist()


TIMES = {
    "20 Hz": steps(20),
    "37 Hz": steps(37),
    "200 Hz": steps(200),
    "20, then 200 Hz": steps(20, 0, 2_100_000) + steps(200, 2_100_000),
    "200, then 20 Hz": steps(200, 0, 2_100_000) + steps(20, 2_100_000),
    "20, 1000, then 20 Hz": steps(20, 0, 2_000_000) + steps(1_000, 2_000_000, 2_200_000) + steps(20, 2_200_000),
    "irregular": [time_us for time_us in irregular(0) if time_us < 4 * SECOND],
    "irregular, too": [time_us for time_us in irregular(1) if time_us < 4 * SECOND],
}


def look(things: list[Thing], time_us: int, generator: np.random.Generator, error: float = 0.02) -> tuple[Detections, list[int]]:
    """What a good detector sees, in a random order, and which thing each row is."""
    rows = []
    for index, thing in enumerate(things):
        visible = thing.start_us <= time_us < thing.end_us and not thing.hidden_us[0] <= time_us < thing.hidden_us[1]
        if visible:
            (x, y), (width, height) = thing.path(time_us / 1e6), thing.size
            box = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
            box += generator.normal(0, error, 4) * [width, height, width, height]
            rows.append((box, 0.2 if thing.dim_us[0] <= time_us < thing.dim_us[1] else 0.9, thing.kind, index))
    rows = [rows[row] for row in generator.permutation(len(rows))]
    boxes = np.array([row[0] for row in rows], np.float32).reshape(-1, 4)
    scores, kinds = np.array([row[1] for row in rows], np.float32), np.array([row[2] for row in rows], np.int64)
    return Detections(boxes, scores, kinds, time_us), [row[3] for row in rows]


def follow(things: list[Thing], times_us: list[int], tracker: Tracker | None = None, **options: float) -> list[list[int]]:
    """The ids that each thing had, one after the other; -1 before the first left out."""
    tracker = tracker or Tracker()
    ids: list[list[int]] = [[] for _ in things]
    generator = np.random.default_rng(0)
    for time_us in times_us:
        seen, which = look(things, time_us, generator, **options)
        found = tracker.update(seen)
        assert found.tracks is not None
        assert np.array_equal(found.boxes, seen.boxes)
        given = found.tracks[found.tracks >= 0]
        assert len(set(given.tolist())) == len(given), "one id, two boxes"
        for index, track in zip(which, found.tracks.tolist(), strict=True):
            if not ids[index] or ids[index][-1] != track:
                ids[index].append(track)
    return [[track for track in own if track >= 0] for own in ids]


@pytest.mark.parametrize("times_us", TIMES.values(), ids=TIMES.keys())
def test_ids_are_the_same_at_every_rate(times_us: list[int]) -> None:
    """Things appear one after the other, so their ids are 0, 1, 2 ...; each has one, whatever the rate."""
    assert follow(STREET, times_us) == [[index] for index in range(len(STREET))]


@pytest.mark.parametrize("rate_hz", [20, 80])
def test_noisier_boxes_at_every_rate(rate_hz: float) -> None:
    assert follow(STREET, steps(rate_hz), error=0.05) == [[index] for index in range(len(STREET))]


@pytest.mark.parametrize("rate_hz", [20, 100])
@pytest.mark.parametrize(("gap_us", "count"), [(300_000, 1), (450_000, 1), (700_000, 2)])
def test_a_gap_longer_than_lost_us_ends_a_track(gap_us: int, count: int, rate_hz: float) -> None:
    thing = Thing(lambda t: (50 + 20 * t, 50), hidden_us=(SECOND, SECOND + gap_us))
    assert follow([thing], steps(rate_hz, 0, 2 * SECOND)) == [list(range(count))]


@pytest.mark.parametrize("rate_hz", [1, 2, 5])
def test_a_slow_rate_alone_ends_no_track(rate_hz: float) -> None:
    """Nothing was missed, though more than lost_us lies between the frames."""
    assert follow([Thing(lambda t: (50 + 5 * t, 50), end_us=20 * SECOND)], steps(rate_hz, 0, 20 * SECOND)) == [[0]]


@pytest.mark.parametrize("rate_hz", [20, 100])
def test_fast_objects_are_followed(rate_hz: float) -> None:
    """Ten sides of the box per second: at 20 Hz two boxes that follow each other overlap by a third."""
    assert follow([Thing(lambda t: (300 * t, 50), size=(30, 30))], steps(rate_hz, 0, SECOND), error=0.01) == [[0]]


@pytest.mark.parametrize("rate_hz", [20, 60])
def test_crossing_objects_of_one_class_keep_their_ids(rate_hz: float) -> None:
    things = [Thing(lambda t: (40 + 50 * t, 60)), Thing(lambda t: (240 - 50 * t, 68), start_us=100_000)]
    assert follow(things, steps(rate_hz)) == [[0], [1]]


@pytest.mark.parametrize("rate_hz", [20, 100])
def test_objects_of_two_classes_that_cross_keep_their_ids(rate_hz: float) -> None:
    things = [Thing(lambda t: (40 + 50 * t, 60)), Thing(lambda t: (240 - 50 * t, 72), kind=1, start_us=100_000)]
    assert follow(things, steps(rate_hz)) == [[0], [1]]


@pytest.mark.parametrize("rate_hz", [20, 100, 200])
def test_one_object_has_one_class(rate_hz: float) -> None:
    """A car that is a two-wheeler in every fourth frame is a car; from the second on in which it is always one, it is a two-wheeler."""
    tracker, shown = Tracker(), {}
    for number, time_us in enumerate(steps(rate_hz, 0, 2 * SECOND)):
        kind = int(time_us >= SECOND or number % 4 == 3)
        found = tracker.update(look([Thing(lambda t: (50 + 20 * t, 50), kind=kind)], time_us, np.random.default_rng(0))[0])
        assert found.tracks is not None
        assert found.tracks[0] == (0 if time_us >= 50_000 else -1)
        shown[time_us] = int(found.classes[0])
    assert {kind for time_us, kind in shown.items() if 200_000 <= time_us < SECOND} == {0}
    assert {kind for time_us, kind in shown.items() if time_us >= 1.4 * SECOND} == {1}


@pytest.mark.parametrize("rate_hz", [20, 100])
def test_what_stands_elsewhere_begins_a_track_of_its_own(rate_hz: float) -> None:
    """The second appears where half of the first was, and is something else."""
    things = [Thing(lambda t: (50, 50), end_us=SECOND), Thing(lambda t: (60, 50), kind=1, start_us=SECOND)]
    assert follow(things, steps(rate_hz, 0, 1_500_000)) == [[0], [1]]


@pytest.mark.parametrize("rate_hz", [20, 100, 200])
def test_confirmation_takes_time_not_frames(rate_hz: float) -> None:
    tracker = Tracker(confirm_us=100_000)
    thing = Thing(lambda t: (50, 50))
    for time_us in steps(rate_hz, 0, SECOND):
        found = tracker.update(look([thing], time_us, np.random.default_rng(0))[0])
        assert found.tracks is not None
        assert (found.tracks[0] >= 0) == (time_us >= 100_000)


def test_a_flash_gets_no_id() -> None:
    flash = Thing(lambda t: (50, 50), start_us=SECOND, end_us=SECOND + 30_000)
    times_us = steps(200, 900_000, 1_300_000)
    assert follow([flash], times_us) == [[]]
    assert follow([flash], times_us, Tracker(confirm_us=0)) == [[0]]


def test_low_scores_continue_tracks_but_start_none() -> None:
    dim = Thing(lambda t: (50, 50), dim_us=(0, 4 * SECOND))
    assert follow([dim], steps(20)) == [[]]
    assert follow([dim._replace(dim_us=(SECOND, 4 * SECOND))], steps(20)) == [[0]]


def test_empty_frames_are_frames() -> None:
    tracker = Tracker()
    found = tracker.update(look([], 0, np.random.default_rng(0))[0])
    assert found.tracks is not None
    assert len(found.tracks) == 0


def test_time_must_not_run_backwards_until_reset() -> None:
    tracker = Tracker()
    first = follow([Thing(lambda t: (50, 50))], steps(20), tracker)
    with pytest.raises(InputError, match=r"backwards .* reset\(\)"):
        tracker.update(look([], 0, np.random.default_rng(0))[0])
    tracker.reset()
    again = follow([Thing(lambda t: (50, 50))], steps(20), tracker)
    assert (first, again) == ([[0]], [[1]])  # no id is given twice


def test_equal_times_are_taken() -> None:
    assert follow([Thing(lambda t: (50, 50))], [0, 0, 50_000, 50_000, 100_000]) == [[0]]


@pytest.mark.parametrize("box", [[0, 0, np.nan, 4], [0, 0, 0, 4], [4, 0, 2, 4]])
def test_boxes_without_area_are_refused(box: list[float]) -> None:
    broken = Detections(np.array([box], np.float32), np.ones(1, np.float32), np.zeros(1, np.int64), 0)
    with pytest.raises(InputError, match="left < right"):
        Tracker().update(broken)


@pytest.mark.parametrize("options", [{"low": 0.6}, {"high": 1.5}, {"lost_us": -1}, {"confirm_us": -1}])
def test_wrong_settings_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match="Tracker"):
        Tracker(**options)


def test_two_steps_of_motion_are_one() -> None:
    boxes = np.array([[0, 0, 20, 30], [5, 5, 50, 20]], np.float32)
    motion = correct(predict(start(boxes), np.full(2, 0.05)), boxes + np.float32(3), np.full(2, 0.05))
    still = motion._replace(velocity=motion.velocity * [1, 1, 0, 0])  # sides are limited, and noise is counted in sides
    once, twice = predict(still, np.full(2, 0.3)), predict(predict(still, np.full(2, 0.1)), np.full(2, 0.2))
    for one, other in zip(once, twice, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_motion_is_the_textbook_filter() -> None:
    """One axis, written as matrices."""
    box = np.array([[0, 0, 20, 20]], np.float32)
    motion, position, covariance = start(box), np.array([10.0, 0]), np.diag([1.0, 80.0**2])
    for dt, shift in ((0.05, 2.0), (0.1, 5.0), (0.2, 9.0)):
        motion = correct(predict(motion, np.array([dt])), box + np.float32(shift), np.array([dt]))
        step, noise = np.array([[1, dt], [0, 1]]), 40.0**2 * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
        position, covariance = step @ position, step @ covariance @ step.T + noise
        gain = covariance[:, 0] / (covariance[0, 0] + 1.0)
        position, covariance = position + gain * (10 + shift - position[0]), covariance - np.outer(gain, covariance[0])
        np.testing.assert_allclose([motion.position[0, 0], motion.velocity[0, 0]], position)
        np.testing.assert_allclose([motion.position_variance[0, 0], motion.covariance[0, 0]], covariance[0])
        np.testing.assert_allclose(motion.velocity_variance[0, 0], covariance[1, 1])


def test_velocity_is_known_as_well_at_every_rate() -> None:
    """Ten detections of overlapping windows say as much as one: after half a second the doubt is nearly the same."""
    doubts = []
    for rate_hz in (20, 200):
        motion, last_us = start(np.array([[0, 0, 20, 20]], np.float32)), 0
        for time_us in steps(rate_hz, 0, SECOND // 2 + 1)[1:]:
            elapsed = np.array([(time_us - last_us) / 1e6])
            shift = np.float32(100 * time_us / 1e6)
            motion = correct(predict(motion, elapsed), np.array([[shift, 0, 20 + shift, 20]], np.float32), elapsed)
            last_us = time_us
        np.testing.assert_allclose(motion.velocity[0, 0], 100, rtol=0.02)
        doubts.append(np.sqrt(motion.velocity_variance[0, 0]))
    np.testing.assert_allclose(*doubts, rtol=0.15)


class Optimal(Tracker):
    """Without the compiled way for frames in which nobody meets."""

    def _associate(self, tracks, expected, detections):
        sure, unsure = detections.scores >= self.high, (detections.scores >= self.low) & (detections.scores < self.high)
        return self._associate_optimally(tracks, expected, detections, sure, unsure)


@pytest.mark.parametrize("seed", range(5))
def test_the_compiled_way_is_the_optimal_one(seed: int) -> None:
    """Of crowds that wander: some frames are clear, in others boxes of one class overlap several tracks."""
    random = np.random.default_rng(seed)
    centres, ours, theirs = random.uniform(20, 140, (8, 2)), Tracker(), Optimal()
    for time_us in range(0, 400_000, 10_000):
        centres += random.normal(0, 1, centres.shape)
        seen = random.random(8) < 0.9
        boxes = np.concatenate([centres - 12, centres + 12], 1)[seen].astype(np.float32)
        found = Detections(boxes, random.uniform(0.05, 1, len(boxes)).astype(np.float32), np.arange(8)[seen] % 3, time_us)
        assert ours.update(found).tracks.tolist() == theirs.update(found).tracks.tolist()
