"""Each effect of the sensor against its formula."""

from dataclasses import replace

import numpy as np
import pytest

from saccade.simulate.sensor import Sensor, SensorConfig
from saccade.types import Events, InputError

IDEAL = SensorConfig(mismatch=0, refractory_us=0, cutoff_hz=float("inf"), shot_hz=0, leak_hz=0, hot_fraction=0)
SIDE = 8


def watch(config: SensorConfig, logs: np.ndarray, step_us: int, side: int = SIDE, seed: int = 0) -> Events:
    """All pixels see exp(logs[i]) at i * step_us."""
    sensor = Sensor(side, side, config, seed)
    return Events.join([sensor.see(np.full((side, side), np.exp(value), np.float32), i * step_us) for i, value in enumerate(logs)])


def intervals(events: Events) -> np.ndarray:
    pixel = events.y.astype(np.int64) * events.width + events.x
    order = np.lexsort((events.t, pixel))
    return np.diff(events.t[order])[np.diff(pixel[order]) == 0]


@pytest.mark.parametrize("step_us", [1000, 2500, 10_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_ramp_crosses_each_threshold_once_at_its_time(step_us: int, sign: int) -> None:
    ramp = -1.5 + sign * np.arange(100_000 // step_us + 1) * step_us * 1.29e-5  # log intensity, 12.9 per second
    events = watch(replace(IDEAL, threshold_on=0.2, threshold_off=0.3), ramp, step_us)
    threshold = 0.2 if sign > 0 else 0.3
    assert len(events) == SIDE**2 * int(1.29 / threshold)
    assert (events.p == (sign > 0)).all()
    expected_us = np.arange(1, int(1.29 / threshold) + 1) * threshold / 1.29e-5
    assert np.abs(events.t[events.x + events.y == 0] - expected_us).max() <= 2  # 24 bits of intensity, and whole microseconds


def test_events_come_in_order_and_inside_their_step() -> None:
    sensor = Sensor(SIDE, SIDE, SensorConfig(shot_hz=500))
    rng = np.random.default_rng(0)
    sensor.see(rng.random((SIDE, SIDE), np.float32), 1000)
    for start_us in range(1000, 40_000, 1300):
        events = sensor.see(rng.random((SIDE, SIDE), np.float32), start_us + 1300)
        assert len(events)
        assert (np.diff(events.t) >= 0).all()
        assert start_us <= events.t[0]
        assert events.t[-1] < start_us + 1300


@pytest.mark.parametrize("refractory_us", [300.0, 1000.0, 7000.0])
def test_a_pixel_is_blind_for_the_refractory_time(refractory_us: float) -> None:
    slope = 2e-4  # per us: a threshold of 0.2 every ms
    events = watch(replace(IDEAL, refractory_us=refractory_us), -6 + slope * np.arange(0, 30_001, 500), 500)
    assert intervals(events).min() >= refractory_us
    assert len(events) == SIDE**2 * int((30_000 + refractory_us) / (0.2 / slope + refractory_us))


def test_leak_makes_rising_events_at_its_rate() -> None:
    events = watch(replace(IDEAL, leak_hz=5.0), np.full(401, -1.0), 10_000)
    assert events.p.all()
    assert len(events) / SIDE**2 / 4 == pytest.approx(5, abs=0.26)  # whole events in 4 s
    assert len(np.unique(events.t)) > SIDE**2  # not all at the same time


@pytest.mark.parametrize("light", [0.01, 0.5, 1.0])
def test_shot_noise_is_poisson_and_stronger_in_the_dark(light: float) -> None:
    side, seconds, rate_hz = 64, 4, 3.0 * (1 - 0.75 * light)
    events = watch(replace(IDEAL, shot_hz=3.0), np.full(41, np.log(light)), 100_000, side)
    mean = rate_hz * seconds
    counts = np.bincount(events.y.astype(int) * side + events.x, minlength=side**2)
    assert counts.mean() == pytest.approx(mean, abs=5 * (mean / side**2) ** 0.5)
    assert counts.var() == pytest.approx(mean, rel=0.15)
    assert events.p.mean() == pytest.approx(0.5, abs=2.5 / len(events) ** 0.5)


def test_hot_pixels_are_few_and_busy() -> None:
    side = 128
    events = watch(replace(IDEAL, hot_fraction=0.01, hot_hz=100), np.full(11, -1.0), 100_000, side)
    counts = np.bincount(events.y.astype(int) * side + events.x, minlength=side**2)
    assert np.count_nonzero(counts) == pytest.approx(0.01 * side**2, abs=4 * (0.01 * side**2) ** 0.5)
    assert counts[counts > 0].mean() == pytest.approx(100, rel=0.3)
    assert events.p.all()


@pytest.mark.parametrize("frequency_hz", [10, 50, 150])
@pytest.mark.parametrize("by_light", [True, False])
def test_the_bandwidth_damps_a_sine(frequency_hz: int, by_light: bool) -> None:
    """First order: gain 1 / sqrt(1 + (f / cutoff)^2), with the cutoff proportional to the light, or the one of the dark."""
    limits = {"cutoff_hz": 250.0, "dark_cutoff_hz": 0.0} if by_light else {"cutoff_hz": 1.0, "dark_cutoff_hz": 50.0}
    times_s = np.arange(0, 0.4, 1e-4)
    amplitude, threshold = 0.3, 0.01
    config = replace(IDEAL, threshold_on=threshold, threshold_off=threshold, **limits)
    events = watch(config, np.log(0.2) + amplitude * np.sin(2 * np.pi * frequency_hz * times_s), 100, 1)
    path = np.cumsum(np.where(events.p, threshold, -threshold))[events.t > 200_000]
    gain = (path.max() - path.min()) / (2 * amplitude)
    assert gain == pytest.approx(1 / np.sqrt(1 + (frequency_hz / 50) ** 2), abs=0.04)


def test_thresholds_differ_from_pixel_to_pixel() -> None:
    side = 64
    events = watch(replace(IDEAL, mismatch=0.1), np.array([-2.0, -1.5]), 1_000_000, side)  # half a unit in a second
    first = np.full(side**2, 0.0)
    pixel = events.y.astype(int) * side + events.x
    first[pixel[::-1]] = events.t[::-1] * 0.5e-6
    assert (first > 0).all()
    assert first.mean() == pytest.approx(0.2, rel=0.01)
    assert first.std() == pytest.approx(0.02, rel=0.1)


def test_chance_depends_on_the_seed_alone() -> None:
    logs = np.random.default_rng(3).normal(-1, 0.3, 40)
    one, again, other = (watch(SensorConfig(shot_hz=50), logs, 5000, seed=seed) for seed in (1, 1, 2))
    for name in "txyp":
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert len(one) != len(other) or not np.array_equal(one.t, other.t)


@pytest.mark.parametrize(
    "wrong", [{"threshold_on": 0.001}, {"refractory_us": -1}, {"mismatch": float("nan")}, {"hot_fraction": 2}, {"cutoff_hz": 0}]
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong)).split("_")[0]):
        SensorConfig(**wrong)


@pytest.mark.parametrize("absurd", [{"shot_hz": 1e6}, {"leak_hz": 1e6}, {"hot_hz": 1e6, "hot_fraction": 1}])
def test_more_events_than_there_is_room_for_are_refused(absurd: dict[str, float]) -> None:
    with pytest.raises(InputError, match="events of one pixel"):
        watch(replace(IDEAL, **absurd), np.full(3, -1.0), 10_000)


def test_time_must_rise_and_pictures_must_fit() -> None:
    sensor = Sensor(4, 4)
    sensor.see(np.ones((4, 4), np.float32), 10)
    with pytest.raises(InputError, match="rise"):
        sensor.see(np.ones((4, 4), np.float32), 10)
    with pytest.raises(InputError, match="expected 4 x 4"):
        sensor.see(np.ones((4, 5), np.float32), 20)
