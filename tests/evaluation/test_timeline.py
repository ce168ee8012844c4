"""Every rate is scored at the same instants, by frames that are fresh enough, and irregular ones are the same in every run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.recording import Sampling
from saccade.evaluation.run.condition import Condition, EvaluationWindow
from saccade.evaluation.run.timeline import OLDEST_US, Timeline, scored_instants, timeline
from saccade.representation.histogram import held
from saccade.types import InputError
from tests.evaluation.squares import START_US, recording
from tests.make.recordings import painted
from tests.training.make import Toy, tiny_config

CONFIG = tiny_config()
PHASES = {5: 4, 10: 2, 20: 1, 30: 2, 40: 1, 60: 1, 80: 1, 100: 1, 200: 1, 1000: 1}


def line_of(folder: Path, **options) -> Timeline:
    return timeline(recording(folder, 1), Condition(**options), CONFIG, label_rate_hz=20)


def ends_of(line: Timeline) -> np.ndarray:
    return np.array([line.phases[phase].ends_us[frame] for phase, frame in zip(line.phase, line.frame, strict=True)])


@pytest.mark.parametrize("window", ["sliding", "disjoint"])
@pytest.mark.parametrize("rate_hz", PHASES)
def test_every_rate_answers_the_same_instants_in_time(tmp_path: Path, rate_hz: int, window: str) -> None:
    line = line_of(tmp_path, rate_hz=rate_hz, window=window)
    assert len(line.phases) == PHASES[rate_hz]
    np.testing.assert_array_equal(np.diff(line.instants_us), 50_000)
    assert len(line.instants_us) >= 38
    ages_us = line.instants_us - ends_of(line)
    assert 0 <= ages_us[:-1].min() <= ages_us[:-1].max() <= OLDEST_US  # the last instant may lie after the last event
    for phase in line.phases:
        lengths = np.unique(phase.ends_us - phase.starts_us)
        step = 1e6 / rate_hz
        assert (lengths == 50_000).all() if window == "sliding" or rate_hz == 20 else (np.abs(lengths - step) <= 1).all()
    assert sum(line.wanted(number).sum() for number in range(len(line.phases))) == len(line.instants_us)


def test_an_adaptive_rate_never_rests_longer_than_its_lowest(tmp_path: Path) -> None:
    line = line_of(tmp_path, rate_hz=200, min_rate_hz=20)
    (phase,) = line.phases
    grid = line_of(tmp_path, rate_hz=200).phases[0].ends_us
    assert set(phase.ends_us.tolist()) < set(grid.tolist())
    assert phase.ends_us[0] == grid[0]
    assert np.diff(phase.ends_us).max() == 50_000
    assert (phase.ends_us - phase.starts_us == 50_000).all()
    disjoint = line_of(tmp_path, rate_hz=200, min_rate_hz=20, window="disjoint").phases[0]
    np.testing.assert_array_equal(disjoint.ends_us, phase.ends_us)
    np.testing.assert_array_equal(disjoint.starts_us[1:], disjoint.ends_us[:-1])


def test_frames_without_events_have_no_adaptive_rate() -> None:
    with pytest.raises(InputError, match="holds frames and no events"):
        timeline(painted("one", 20), Condition(rate_hz=20, min_rate_hz=5), CONFIG)


def test_shrunk_windows_are_the_end_of_the_trained_ones(tmp_path: Path) -> None:
    line, trained = line_of(tmp_path, rate_hz=200, window="shrunk"), line_of(tmp_path)
    np.testing.assert_array_equal(line.phases[0].ends_us, trained.phases[0].ends_us)
    assert (line.phases[0].ends_us - line.phases[0].starts_us == 5000).all()
    np.testing.assert_array_equal(line.frame, trained.frame)
    one = recording(tmp_path, 1)
    some = slice(3, 9)
    whole, short = trained.phases[0].frames(one, some), line.phases[0].frames(one, some)
    assert 0 < short.sum() < whole.sum() / 5


@pytest.mark.parametrize("window", ["sliding", "disjoint", "shrunk"])
def test_held_counts_repeat_what_a_short_window_holds(tmp_path: Path, window: EvaluationWindow) -> None:
    one = recording(tmp_path, 1)
    plain, filled = (line_of(tmp_path, rate_hz=100, window=window, counts=counts).phases[0] for counts in ("plain", "held"))
    frames, some = plain.frames(one, slice(3, 30)), filled.frames(one, slice(3, 30))
    assert frames.any()
    expected = frames if window == "sliding" else np.stack([held(frame, 10_000, 50_000) for frame in frames])
    np.testing.assert_array_equal(some, expected)


def test_windows_run_are_the_events_of_their_time(tmp_path: Path) -> None:
    """A shifted phase sees what a grid with that origin would see."""
    one = recording(tmp_path, 1)
    line = line_of(tmp_path, rate_hz=10)
    assert [phase.regular for phase in line.phases] == [True, False]
    twice = one.ends_us(Sampling(bins=1))
    for phase in line.phases:
        inside = phase.ends_us[2:8]
        np.testing.assert_array_equal(
            phase.frames(one, slice(2, 8)), np.concatenate([one.frames(twice[twice == end], Sampling(bins=1)) for end in inside])
        )


@pytest.mark.parametrize("change", [{"jitter": 0.3}, {"drop": 0.4}, {"jitter": 0.5, "drop": 0.2}])
def test_irregular_streams_are_the_same_in_every_run(tmp_path: Path, change: dict[str, float]) -> None:
    line, again = (line_of(tmp_path, rate_hz=100, **change) for _ in range(2))
    (phase,) = line.phases
    np.testing.assert_array_equal(phase.ends_us, again.phases[0].ends_us)
    other = line_of(tmp_path, rate_hz=100, seed=1, **change).phases[0].ends_us
    assert other.shape != phase.ends_us.shape or (other != phase.ends_us).any()
    elsewhere = timeline(replace(recording(tmp_path, 1), name="other"), Condition(rate_hz=100, **change), CONFIG, 20).phases[0].ends_us
    assert elsewhere.shape != phase.ends_us.shape or (elsewhere != phase.ends_us).any()
    assert (np.diff(phase.ends_us) > 0).all()
    np.testing.assert_array_equal(line.instants_us, line_of(tmp_path).instants_us)
    ages_us = (line.instants_us - ends_of(line))[line.frame >= 0]
    assert (ages_us >= 0).all(), "no answer is from the future"
    for instant_us, frame in zip(line.instants_us, line.frame, strict=True):
        assert frame == (phase.ends_us <= instant_us).sum() - 1
    if "jitter" not in change:
        regular = line_of(tmp_path, rate_hz=100).phases[0].ends_us
        assert set(phase.ends_us) < set(regular)
        assert 0.4 < len(phase.ends_us) / len(regular) < 0.8
    elif "drop" not in change:
        steps_us = np.diff(phase.ends_us)
        assert 6_999 <= steps_us.min() < 7_500
        assert 12_500 < steps_us.max() <= 13_001


def test_jittered_disjoint_windows_hold_every_event_once(tmp_path: Path) -> None:
    (phase,) = line_of(tmp_path, rate_hz=100, window="disjoint", jitter=0.4).phases
    np.testing.assert_array_equal(phase.starts_us[1:], phase.ends_us[:-1])


@pytest.mark.parametrize(("window", "length_us"), [("sliding", 50_000), ("shrunk", 10_000)])
def test_other_jittered_windows_keep_their_length(tmp_path: Path, window: EvaluationWindow, length_us: int) -> None:
    (phase,) = line_of(tmp_path, rate_hz=100, window=window, jitter=0.4).phases
    assert (phase.ends_us - phase.starts_us == length_us).all()
    assert len(np.unique(np.diff(phase.ends_us))) > 10


def test_labels_are_thinned_only_if_they_are_denser(tmp_path: Path) -> None:
    one = recording(tmp_path, 1)
    assert len(scored_instants(one, None)) == 400
    assert len(scored_instants(one, 50)) == 100
    np.testing.assert_array_equal(scored_instants(one, 20), START_US + 5000 + np.arange(40) * 50_000)
    sparse = recording(tmp_path, 1, rate_hz=4)
    np.testing.assert_array_equal(scored_instants(sparse, 20), sparse.instants_us)


def test_off_the_grid_the_nearest_frame_answers_in_training() -> None:
    """Where only one rate exists, a label belongs to the frame that ends nearest to it, before or after."""

    class Late(Toy):
        instants_us = property(lambda self: np.arange(1, 30) * 100_000 + np.array([24_000, -24_000, 3])[np.arange(29) % 3])

    line = timeline(Late(1, count=80), Condition(), CONFIG, label_rate_hz=20, nearest=True)
    np.testing.assert_array_equal(ends_of(line), np.arange(1, 30) * 100_000)
    assert len(line.phases) == 1
    assert len(timeline(Late(1, count=80), Condition(), CONFIG, label_rate_hz=20).phases) > 1
