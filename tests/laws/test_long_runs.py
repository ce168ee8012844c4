"""Days without a restart: a million steps of every memory stay finite and as quick as the first, two million windows take no memory."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from saccade.model.temporal import TEMPORAL_LAYERS, build_temporal

CLIP, CLIPS = 1000, 1000
COMPARED = 100  # clips at the beginning and at the end
WINDOWS = 2_000_000
EARLY = 100_000  # windows after which nothing may grow any more
MEASURE = f"""
import sys
import numpy as np
import saccade

def portions(count, at_once=20_000):
    pixels = np.zeros(at_once, np.uint16)
    for first in range(0, count, at_once):
        t = np.arange(first, first + at_once, dtype=np.int64) * 5000
        yield saccade.Events(t, pixels, pixels, np.zeros(at_once, np.bool_), 1, 1)

def peak_kb():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])

made = {{"windows": saccade.windows, "frames": saccade.frames}}[sys.argv[1]](portions(int(sys.argv[2])), 200)
early_kb = 0
for count, _ in enumerate(made, 1):
    if count == {EARLY}:
        early_kb = peak_kb()
print(count, early_kb, peak_kb())
"""


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
@pytest.mark.parametrize("what", ["windows", "frames"])
def test_two_million_windows_need_no_more_memory_than_the_first_thousands(what: str) -> None:
    """2.8 hours at 200 Hz, an event per window; in a process of its own, without the shape checks, which take most of the time here."""
    result = subprocess.run([sys.executable, "-c", MEASURE, what, str(WINDOWS)], capture_output=True, text=True, check=True)
    count, early_kb, late_kb = map(int, result.stdout.split())
    print(f"{what}: {count:,}, {late_kb - early_kb} kB more at the end than after {EARLY:,}")
    assert WINDOWS <= count <= WINDOWS + 10
    assert late_kb - early_kb < 4000
