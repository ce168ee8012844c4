"""Days without a restart: a million steps of every memory stay finite and as quick as the first, two million windows take no memory."""

import resource
import time

import numpy as np
import pytest
import torch

from saccade.model.temporal import TEMPORAL_LAYERS, build_temporal
from saccade.representation.windows import windows
from saccade.types import Events

CLIP, CLIPS = 1000, 1000
COMPARED = 100  # clips at the beginning and at the end
WINDOWS = 2_000_000
EVENTS_AT_ONCE = 20_000


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEMPORAL_LAYERS)
def test_a_million_steps_stay_finite_and_as_quick_as_the_first(name: str) -> None:
    """One loud clip, then silence: the state decays towards numbers (denormals) with which processors may compute 100 times slower."""
    torch.manual_seed(0)
    layer = build_temporal(name, 4)
    loud, silent, dt = torch.randn(CLIP, 1, 1, 1, 4), torch.zeros(CLIP, 1, 1, 1, 4), torch.ones(CLIP, 1)
    seconds = []
    with torch.inference_mode():
        state = layer.initial_state(loud)
        for clip in range(CLIPS):
            began_s = time.process_time()
            y, state = layer(silent if clip else loud, state, dt)
            seconds.append(time.process_time() - began_s)
            assert torch.isfinite(y).all(), f"{name}: not finite in clip {clip}"
    assert all(torch.isfinite(part).all() for part in state)
    first, last = np.median(seconds[1 : 1 + COMPARED]), np.median(seconds[-COMPARED:])
    tiny = sum(int(((part != 0) & (part.abs() < torch.finfo(part.dtype).tiny)).sum()) for part in state)
    print(f"{name}: {CLIP * CLIPS:,} steps in {sum(seconds):.0f} s, last / first {last / first:.2f}, {tiny} denormals in the state")
    assert last < 2 * first


@pytest.mark.thorough
def test_two_million_windows_need_no_more_memory_than_the_first_thousands() -> None:
    """2.8 hours at 200 Hz, an event per window."""

    def portions():
        for first in range(0, WINDOWS, EVENTS_AT_ONCE):
            t = np.arange(first, first + EVENTS_AT_ONCE, dtype=np.int64) * 5000
            pixels = np.zeros(EVENTS_AT_ONCE, np.uint16)
            yield Events(t, pixels, pixels, np.zeros(EVENTS_AT_ONCE, np.bool_), 1, 1)

    early_kb = 0
    for count, _ in enumerate(windows(portions(), 200.0), 1):
        if count == 5 * EVENTS_AT_ONCE:
            early_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early_kb
    print(f"{count:,} windows, {grown_kb} kB more at the end than after {5 * EVENTS_AT_ONCE:,}")
    assert WINDOWS <= count <= WINDOWS + 10
    assert grown_kb < 4000
