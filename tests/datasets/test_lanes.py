"""Lanes: pure in seed, lane and step; ordered ones play recordings through, random ones jump; no frame is invented or lost."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from saccade.datasets.augment import NO_AUGMENTATION
from saccade.datasets.lanes import Lanes, LaneSettings
from saccade.datasets.recording import Dataset, Sampling
from saccade.evaluation.run.levels import steps_of
from saccade.types import InputError
from tests.make.recordings import painted, painted_dataset

LENGTH = 5
KINDS = ["mixed", "ordered", "random"]


def make(
    dataset: Dataset | None = None, *, lanes: int = 4, seed: int = 0, length: int = LENGTH, rate_hz: float = 20.0, **settings
) -> Lanes:
    dataset = dataset or painted_dataset(23, 31, 12, 40, 17)
    return Lanes(dataset, Sampling(rate_hz=rate_hz, bins=2), LaneSettings(**settings), lanes=lanes, length=length, seed=seed)


def same(a, b) -> bool:
    arrays = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("frames", "dt", "ends_us", "labelled"))
    boxes = all(np.array_equal(x.boxes, y.boxes) for x, y in zip(a.labels, b.labels, strict=True))
    return arrays and boxes and (a.is_first, a.name) == (b.is_first, b.name)


def frames_of(lanes: Lanes, lane: int, step: int) -> list[tuple[str, int]]:
    """Recording and end of a clip's frames, without reading them."""
    place = lanes.place(lane, step)
    kept = place.timeline.kept[place.first : place.first + lanes.length]
    return [(lanes.dataset.recordings[place.recording].name, end_us) for end_us in place.timeline.ends_us[kept].tolist()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip", [0.0, 0.3])
def test_a_clip_depends_on_seed_lane_and_step_alone(kind, skip) -> None:
    options = {"kind": kind, "skip": skip, "rates_hz": (10, 20, 40)}
    places = [(lane, step) for step in range(12) for lane in range(4)]
    lanes = make(**options)
    forwards = {place: lanes.clip(*place) for place in places}
    lanes = make(**options)
    for place in reversed(places):
        assert same(lanes.clip(*place), forwards[place])
    other = make(seed=1, **options)
    assert not all(same(other.clip(*place), forwards[place]) for place in places)


def test_ordered_lanes_play_recordings_through() -> None:
    lanes = make(kind="ordered")
    for lane in range(4):
        clips = [lanes.clip(lane, step) for step in range(60)]
        assert clips[0].is_first
        for before, after in pairwise(clips):
            if not after.is_first:
                assert (after.name, after.ends_us[0]) == (before.name, before.ends_us[-1] + 50_000)
        lengths = np.diff(np.flatnonzero([clip.is_first for clip in clips]))
        names = [clip.name for clip in clips if clip.is_first]
        frames = {recording.name: len(recording.ends_us(lanes.sampling)) for recording in lanes.dataset.recordings}
        assert [frames[name] // LENGTH for name in names[:-1]] == lengths.tolist()


def test_every_frame_gets_its_turn_in_an_ordered_lane() -> None:
    lanes = make(kind="ordered", lanes=2)
    seen = {frame for lane in range(2) for step in range(300) for frame in frames_of(lanes, lane, step)}
    expected = {(recording.name, end_us) for recording in lanes.dataset.recordings for end_us in recording.ends_us(lanes.sampling)}
    assert seen == expected


def test_an_epoch_deals_every_recording_once() -> None:
    """Of equal recordings: five lanes' first plays are the five recordings, and so on, in another order."""
    lanes = make(painted_dataset(*[20] * 5), kind="ordered", lanes=5)
    orders = [[lanes.place(lane, step).recording for lane in range(5)] for step in range(0, 40, 4)]
    assert all(sorted(order) == list(range(5)) for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_more_lanes_than_recordings() -> None:
    lanes = make(painted_dataset(23), kind="ordered", lanes=3)
    firsts = {lanes.clip(lane, 0).ends_us[0] for lane in range(3)} | {lanes.clip(lane, 4).ends_us[0] for lane in range(3)}
    assert len(firsts) > 1  # each begins elsewhere


def test_random_lanes_start_anew_and_always_have_labels() -> None:
    lanes = make(kind="random")
    clips = [lanes.clip(lane, step) for lane in range(4) for step in range(40)]
    assert all(clip.is_first and clip.labelled.any() and len(clip.labels[-1]) for clip in clips)
    assert {clip.name for clip in clips} == {recording.name for recording in lanes.dataset.recordings}


def test_random_lanes_take_labelled_instants_equally_often() -> None:
    lanes = make(painted_dataset(40, 80, every=5), kind="random", augment=NO_AUGMENTATION)
    ends = [frames_of(lanes, lane, step)[-1] for lane in range(4) for step in range(300)]
    counts = [ends.count(end) for end in set(ends)]
    assert len(counts) == 24  # every labelled instant is the last of a clip: 8 + 16
    assert min(counts) > 20  # 50 expected
    assert max(counts) < 90


def test_mixed_lanes_are_half_ordered_half_random() -> None:
    mixed, ordered, random = make(kind="mixed"), make(kind="ordered", lanes=2), make(kind="random")
    for step in range(20):
        for half in range(2):
            assert same(mixed.clip(2 * half, step), ordered.clip(half, step))
            assert same(mixed.clip(2 * half + 1, step), random.clip(2 * half + 1, step))


def test_frames_are_those_of_the_recording() -> None:
    lanes = make(augment=NO_AUGMENTATION)
    recordings = {recording.name: recording for recording in lanes.dataset.recordings}
    for step in range(30):
        for lane in range(4):
            clip = lanes.clip(lane, step)
            np.testing.assert_array_equal(clip.frames, recordings[clip.name].frames(clip.ends_us, lanes.sampling))
            assert (np.diff(clip.ends_us) == 50_000).all()
            np.testing.assert_array_equal(clip.dt, 1.0)
            assert clip.labelled.tolist() == [end_us in recordings[clip.name].labels.t for end_us in clip.ends_us]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip", [0.0, 0.5])
def test_rate_augmentation_tells_the_true_time(kind, skip) -> None:
    lanes = make(painted_dataset(100, 140, 90), kind=kind, rates_hz=(10, 30, 200), skip=skip)
    steps = set()
    for lane in range(4):
        previous = None
        for step in range(30):
            clip = lanes.clip(lane, step)
            np.testing.assert_allclose(clip.dt[1:] * 50_000, np.diff(clip.ends_us), rtol=1e-6)
            if clip.is_first:
                assert clip.dt[0] == steps_of(clip.ends_us, 50_000).dt[0] == 1, "evaluations and streams begin so at any rate"
            elif previous is not None:
                assert clip.dt[0] * 50_000 == pytest.approx(clip.ends_us[0] - previous.ends_us[-1], rel=1e-6)
            assert clip.dt.min() > 0
            steps |= {round(dt, 2) for dt in clip.dt[1:].tolist()}
            previous = clip
    assert {0.1, 2.0} <= steps
    assert (len(steps) > 4) == bool(skip)  # irregular only if asked for


def test_labels_lie_on_their_nearest_frame_at_any_rate() -> None:
    lanes = make(painted_dataset(100, 140, every=3), kind="random", rates_hz=(10, 20, 60, 200), augment=NO_AUGMENTATION)
    for step in range(200):
        clip = lanes.clip(0, step)
        tolerance_us = min(25_000, 50_000 * clip.dt[1] / 2)
        for end_us, labels in zip(clip.ends_us[clip.labelled], clip.labels, strict=True):
            assert (np.abs(labels.t - end_us) <= tolerance_us).all()


def test_the_augmentation_holds_along_a_played_recording() -> None:
    lanes = make(painted_dataset(40, 60, 50), kind="ordered")
    pictures = []
    for step in range(60):
        place = lanes.place(0, step)
        if place.is_first:
            pictures.append(place.augmentation)
        assert place.augmentation == pictures[-1]
        assert place.augmentation.zoom <= 1
    assert len(set(pictures)) > 1


def test_short_recordings_are_left_out_of_ordered_lanes(caplog) -> None:
    lanes = make(painted_dataset(3, 20), kind="ordered", lanes=2)
    assert {lanes.clip(lane, step).name for lane in range(2) for step in range(20)} == {"recording 1"}
    assert "recording 0: 3 frames at 20 Hz" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_no_recording_of_a_clip_s_length(kind) -> None:
    with pytest.raises(InputError, match="lower the length"):
        make(painted_dataset(3, 4, every=1), kind=kind).clip(0, 0)


def test_without_labels_nothing_can_be_drawn() -> None:
    with pytest.raises(InputError, match="no labels"):
        make(painted_dataset(20, every=50), kind="random")
    assert not make(painted_dataset(20, every=50), kind="ordered").clip(0, 0).labelled.any()


def test_labels_of_another_clock_are_an_error_not_an_endless_search() -> None:
    recording = painted("elsewhere", 20)
    labels = replace(recording.labels, t=recording.labels.t + 10_000_000)
    with pytest.raises(InputError, match="labels' times"):
        make(Dataset("painted", "train", ("car",), [replace(recording, labels=labels)]), kind="random").clip(0, 0)


@pytest.mark.parametrize("wrong", [{"skip": 1.0}, {"rates_hz": (0.0,)}, {"tolerance_us": -1.0}])
def test_wrong_settings(wrong) -> None:
    with pytest.raises(InputError, match="lanes"):
        LaneSettings(**wrong)


def test_wrong_numbers() -> None:
    with pytest.raises(InputError, match="at least 2 lanes of kind=mixed"):
        make(lanes=1)
    with pytest.raises(InputError, match="no recordings"):
        make(painted_dataset())
    with pytest.raises(InputError, match="lane 4 of 4"):
        make().clip(4, 0)


def test_the_fingerprint_says_whether_steps_mean_the_same() -> None:
    assert make().fingerprint() == make().fingerprint()
    others = [make(seed=1), make(lanes=2), make(length=4), make(kind="random"), make(rate_hz=40), make(painted_dataset(23, 31))]
    assert len({lanes.fingerprint() for lanes in [make(), *others]}) == 1 + len(others)


def test_a_late_step_is_found_without_playing_to_it() -> None:
    """A checkpoint of the last day resumes at once: recordings are counted, not read."""
    recordings = [replace(painted(f"recording {i}", 1200), broken=True) for i in range(3)]  # reading one would raise
    lanes = make(Dataset("painted", "train", ("car",), recordings), kind="ordered", length=21)
    assert lanes.place(0, 100_000).first + 21 <= 1200


def test_what_stands_still_since_before_the_memory_began_is_not_asked_for() -> None:
    """A clip that starts anew can't know of an object that made its last events before; a lane that has played on since then can."""
    recording = painted("still", 80, every=1, boxes=2)
    times = recording.labels.t
    still_us = np.where(np.arange(len(times)) % 2, 0, np.maximum(times - 100_000, 0))  # one of two moves for 0.1 s and never again
    dataset = Dataset("still", "train", ("a", "b"), [replace(recording, labels=replace(recording.labels, still_us=still_us))])

    def counts(**settings) -> list[int]:
        lanes = make(dataset, lanes=1, augment=NO_AUGMENTATION, **settings)
        return [len(labels) for step in range(8) for labels in lanes.clip(0, step).labels if lanes.place(0, step).first > 2]

    assert set(counts(kind="ordered")) == {2}
    assert set(counts(kind="random")) == {1}
    assert set(counts(kind="random", seen_only=False)) == {2}
