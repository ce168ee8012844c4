"""TIME PER STEP -> which frame's answer is there by an instant: one worker that always takes the newest frame."""

import numpy as np
from jaxtyping import Int64

from saccade.machine import compiled
from saccade.types import InputError

NEVER_US = int(np.iinfo(np.int64).max)


def ready_frames(ends_us: Int64[np.ndarray, "frames"], step_us: int) -> Int64[np.ndarray, "frames"]:
    """When the answer of each frame is ready, NEVER_US for those that a newer frame overtook while the worker was busy.

    A frame is ready STEP_US after the later of its end and the moment at which the worker is free.
    """
    if step_us < 0:
        raise InputError(f"latency: step_us={step_us} must be 0 or more")
    if len(ends_us) > 1 and (ends_us[1:] < ends_us[:-1]).any():
        raise InputError("latency: the ends of frames must be in the order of time")
    return _ready(np.ascontiguousarray(ends_us), int(step_us))


def newest_ready(
    ends_us: Int64[np.ndarray, "frames"], instants_us: Int64[np.ndarray, "instants"], step_us: int
) -> Int64[np.ndarray, "instants"]:
    """Number of the newest frame whose answer is ready at each instant, -1 = none yet. With a step of 0 the newest that has ended.

    A quicker worker isn't always the better one at a single instant: it may have begun just before a frame that a slower one waited for.
    """
    ready_us = ready_frames(ends_us, step_us)
    answered = np.flatnonzero(ready_us != NEVER_US)
    place = np.searchsorted(ready_us[answered], instants_us, side="right") - 1
    return np.where(place < 0, -1, np.append(answered, -1)[place])


@compiled
def _ready(ends_us: np.ndarray, step_us: int) -> np.ndarray:
    ready_us = np.full(len(ends_us), NEVER_US)
    i, free_us = 0, ends_us[0] if len(ends_us) else 0
    while i < len(ends_us):
        start_us = max(ends_us[i], free_us)
        while i + 1 < len(ends_us) and ends_us[i + 1] <= start_us:
            i += 1
        ready_us[i] = free_us = start_us + step_us
        i += 1
    return ready_us
