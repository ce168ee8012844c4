"""Which frame continues from which: one chain or interleaved ones, frame by frame or level by level, is the same network."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.config import presets
from saccade.evaluation.run.levels import LevelStates, blocks, needed, only, step, steps_of
from saccade.model.detector import Detector
from saccade.model.stepping import FRESH, History, predecessors
from saccade.types import InputError, Stepping

WINDOW_US = 50_000
NANO = [name for name in presets if name.endswith("nano")]  # one for each memory
HOURS_US = 5 * 3_600_000_000

irregular = st.lists(st.integers(1, 120_000), min_size=1, max_size=60).map(lambda gaps: HOURS_US + np.cumsum(np.array(gaps, np.int64)))
steppings: st.SearchStrategy[Stepping] = st.sampled_from(["direct", "interleaved"])


def regular(rate_hz: float, count: int) -> np.ndarray:
    return HOURS_US + (np.arange(count) * 1e6 / rate_hz).astype(np.int64)


def pictures(count: int, seed: int = 0) -> torch.Tensor:
    return (torch.rand(count, 20, 32, 32, generator=torch.Generator().manual_seed(seed)) < 0.1).to(torch.uint8)


def in_levels(
    detector: Detector, frames: torch.Tensor, ends_us: np.ndarray, stepping: Stepping, most: int = 8, reset_every: int = 0
) -> torch.Tensor:
    steps = steps_of(ends_us, WINDOW_US, stepping, reset_every)
    memory: LevelStates | None = None
    out = []
    for block in blocks(steps, most):
        (pyramid,), (memory,) = step(detector, [frames[block.frames]], [steps], [block], [memory])
        out.append(pyramid[2].flatten(0, 1))
    return torch.cat(out)


def frame_by_frame(detector: Detector, frames: torch.Tensor, ends_us: np.ndarray, stepping: Stepping, reset_every: int = 0) -> torch.Tensor:
    history = History(WINDOW_US, stepping, reset_every)
    out = []
    for frame, end_us in zip(frames, ends_us.tolist(), strict=True):
        state, dt = history.choose(end_us)
        picture = frame[None, None]
        pyramid, state = detector.encode(picture, detector.initial_state(picture) if state is None else state, dt)
        history = history.add(end_us, state)
        out.append(pyramid[2][0])
        assert len(history.states) <= (1 if stepping == "direct" else 40)
    return torch.cat(out)


@pytest.fixture(scope="module", params=NANO)
def detector(request: pytest.FixtureRequest) -> Detector:
    torch.manual_seed(0)
    return Detector(presets[request.param]()).eval()


@given(irregular, steppings)
def test_who_follows_whom(ends_us: np.ndarray, stepping: Stepping) -> None:
    """Time never goes back, fresh ones are at the beginning only, dt is the true time, and levels are what their name says."""
    steps = steps_of(ends_us, WINDOW_US, stepping)
    before, n = steps.predecessors, len(ends_us)
    assert (before < np.arange(n)).all()
    assert (np.diff(before) >= 0).all()
    later = np.flatnonzero(before != FRESH)
    np.testing.assert_array_equal(steps.dt[later], (ends_us[later] - ends_us[before[later]]) / WINDOW_US)
    assert (steps.dt[before == FRESH] == 1).all()
    depth = np.zeros(n, np.int64)
    for i in later:
        depth[i] = depth[before[i]] + 1
    np.testing.assert_array_equal(np.repeat(np.arange(len(steps.levels) - 1), np.diff(steps.levels)), depth)
    if stepping == "interleaved":
        young = ends_us - ends_us[0] < 0.99 * WINDOW_US
        np.testing.assert_array_equal(before == FRESH, young)
        for i in later:
            away = np.abs(ends_us[i] - WINDOW_US - ends_us[:i][ends_us[i] - ends_us[:i] > 0.51 * WINDOW_US])
            assert abs(ends_us[i] - WINDOW_US - ends_us[before[i]]) <= away.min() + WINDOW_US // 100


@given(irregular, steppings, st.integers(1, 40), st.integers(0, 5))
def test_blocks_hold_every_frame_once_and_know_their_predecessors(
    ends_us: np.ndarray, stepping: Stepping, most: int, reset_every: int
) -> None:
    steps = steps_of(ends_us, WINDOW_US, stepping, reset_every)
    firsts, held = 0, []
    for block in blocks(steps, most):
        assert block.first == firsts
        firsts = block.frames.stop
        assert block.steps == 1 or block.steps * block.lanes <= most
        inner = np.arange(block.first + block.lanes, firsts)
        np.testing.assert_array_equal(steps.predecessors[inner], inner - block.lanes)
        outer = steps.predecessors[block.first : block.first + block.lanes]
        assert (outer == FRESH).all() or set(outer.tolist()) <= set(held)
        held = list(range(firsts - block.lanes, firsts))
    assert firsts == len(ends_us)


@given(irregular, steppings, st.integers(0, 4))
def test_history_chooses_as_the_whole_stream_does(ends_us: np.ndarray, stepping: Stepping, reset_every: int) -> None:
    steps = steps_of(ends_us, WINDOW_US, stepping, reset_every)
    history = History(WINDOW_US, stepping, reset_every)
    for i, end_us in enumerate(ends_us.tolist()):
        state, dt = history.choose(end_us)
        assert (-1 if state is None else int(state[0][0])) == steps.predecessors[i]
        assert dt == steps.dt[i]
        history = history.add(end_us, ((torch.tensor(i),),))


@given(irregular, steppings, st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_what_nobody_asks_can_be_left_out(ends_us: np.ndarray, stepping: Stepping, reset_every: int, seed: int) -> None:
    """What is left continues from the same frames, after the same time, in levels that blocks can be made of."""
    steps = steps_of(ends_us, WINDOW_US, stepping, reset_every)
    wanted = np.random.default_rng(seed).random(len(ends_us)) < 0.1
    kept = needed(steps, wanted)
    assert kept[wanted].all()
    part, places = only(steps, kept), np.flatnonzero(kept)
    for new, old in enumerate(places.tolist()):
        before, told = steps.predecessors[old], part.predecessors[new]
        assert (before == FRESH) == (told == FRESH)
        assert told == FRESH or places[told] == before
        assert part.dt[new] == steps.dt[old]
    followed = set(part.predecessors.tolist())
    assert all(new in followed or wanted[old] for new, old in enumerate(places.tolist())), "somebody is run for nothing"
    assert sum(block.steps * block.lanes for block in blocks(part, 7)) == len(places)
    held: list[int] = []
    for block in blocks(part, 7):
        outer = part.predecessors[block.first : block.first + block.lanes]
        assert (outer == FRESH).all() or set(outer.tolist()) <= set(held)
        held = list(range(block.frames.stop - block.lanes, block.frames.stop))


@pytest.mark.parametrize("rate_hz", [40, 60, 100, 200, 1000])
def test_at_k_times_the_rate_there_are_k_chains(rate_hz: int) -> None:
    k = rate_hz // 20
    steps = steps_of(regular(rate_hz, 5 * k), WINDOW_US, "interleaved")
    np.testing.assert_array_equal(steps.predecessors, np.maximum(np.arange(5 * k) - k, -1))
    np.testing.assert_allclose(steps.dt, 1, atol=1e-4)


@pytest.mark.parametrize("rate_hz", [5, 10, 20])
def test_at_low_rates_both_are_one_chain(rate_hz: int) -> None:
    ends_us = regular(rate_hz, 50)
    np.testing.assert_array_equal(predecessors(ends_us, WINDOW_US, "interleaved"), predecessors(ends_us, WINDOW_US, "direct"))


@pytest.mark.parametrize("stepping", ["direct", "interleaved"])
def test_frame_by_frame_equals_level_by_level(detector: Detector, stepping: Stepping) -> None:
    """A live stream and an evaluation are the same, on irregular times with a pause, for every memory."""
    gaps = np.random.default_rng(1).integers(5_000, 30_000, 16)
    gaps[9] = 400_000
    ends_us, frames = HOURS_US + np.cumsum(gaps), pictures(16)
    with torch.inference_mode():
        for reset_every, most in ((0, 1), (0, 100), (3, 7)):
            live = frame_by_frame(detector, frames, ends_us, stepping, reset_every)
            torch.testing.assert_close(in_levels(detector, frames, ends_us, stepping, most, reset_every), live, atol=1e-4, rtol=1e-4)


def test_interleaved_is_so_many_shifted_streams_of_the_training_rate(detector: Detector) -> None:
    ends_us, frames = regular(100, 25), pictures(25)
    with torch.inference_mode():
        together = in_levels(detector, frames, ends_us, "interleaved", 100)
        for shift in range(5):
            alone = in_levels(detector, frames[shift::5], ends_us[shift::5], "direct", 100)
            torch.testing.assert_close(together[shift::5], alone, atol=2e-5, rtol=1e-5)
        direct = in_levels(detector, frames, ends_us, "direct")
    assert (direct - together).abs().max() > 1e-3, "the memory matters"


@pytest.mark.parametrize("stepping", ["direct", "interleaved"])
def test_a_memory_that_ends_after_n_frames_is_clips_of_n(detector: Detector, stepping: Stepping) -> None:
    rate_hz, clip = (20, 4) if stepping == "direct" else (40, 8)
    ends_us, frames = regular(rate_hz, 3 * clip), pictures(3 * clip)
    with torch.inference_mode():
        whole = in_levels(detector, frames, ends_us, stepping, reset_every=4)
        parts = [in_levels(detector, frames[i : i + clip], ends_us[i : i + clip], stepping) for i in range(0, len(frames), clip)]
    torch.testing.assert_close(whole, torch.cat(parts), atol=2e-5, rtol=1e-5)


def test_streams_that_step_together_are_those_that_step_alone(detector: Detector) -> None:
    plans = [steps_of(regular(rate_hz, 12), WINDOW_US, "interleaved") for rate_hz in (60, 80)]
    streams = [pictures(12, seed) for seed in range(2)]
    with torch.inference_mode():
        memories: list[LevelStates | None] = [None, None]
        out: list[list[torch.Tensor]] = [[], []]
        for pair in zip(*(blocks(plan, 1) for plan in plans), strict=False):
            frames = [stream[block.frames] for stream, block in zip(streams, pair, strict=True)]
            pyramids, after = step(detector, frames, plans, pair, memories)
            memories = list(after)
            for own, pyramid in zip(out, pyramids, strict=True):
                own.append(pyramid[2].flatten(0, 1))
        for own, stream, rate_hz in zip(out, streams, (60, 80), strict=True):
            alone = in_levels(detector, stream, regular(rate_hz, 12), "interleaved")
            torch.testing.assert_close(torch.cat(own), alone[: sum(map(len, own))], atol=2e-5, rtol=1e-5)


def test_wrong_input_is_named() -> None:
    with pytest.raises(InputError, match="each must end later"):
        predecessors(np.array([5, 5]), WINDOW_US)
    with pytest.raises(InputError, match="time must go on"):
        History(WINDOW_US).add(10, ()).choose(10)
