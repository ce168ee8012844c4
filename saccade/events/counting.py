"""The counters of one pass over a recording: compiled loops, and the same in numpy, which ends sooner where a recording is short."""

import numpy as np

from saccade.events.mend import NEVER
from saccade.machine import compiled

BARS = 60  # of the rate plot, at most
HOLE_US = 10_000  # shorter gaps are never holes
HOLE_CLASSES = 40  # gaps of 10 ms, 20 ms, 40 ms, ... are counted separately, because which are unusual is known only at the end
LISTED = 8  # holes kept with time and length
# The counters. LATEST is the largest time so far, from which steps back and gaps are measured.
COUNT, POSITIVE, OUTSIDE, DUPLICATES, BACKWARDS, FIRST_BACKWARDS, LARGEST_STEP, EARLIEST, LATEST, NUMBERS = range(10)
HIGH_BITS, EVENTS = 2, 3


def goes_on(t: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether no event is earlier than one before: what the loops in numpy ask for."""
    return bool(t[0] >= numbers[LATEST] and (t[1:] >= t[:-1]).all())


def count_times_plainly(t, numbers, gap_time_us, hole_counts, hole_list) -> None:
    """As `count_times`, of times that go on."""
    gaps = np.diff(t, prepend=t[0] if numbers[LATEST] == NEVER else numbers[LATEST])
    places = np.flatnonzero(gaps)
    gaps = gaps[places]
    powers = np.frexp((gaps - 1).astype(np.float64))[1]  # the least with 2^power >= gap; exact below 2^53 us
    np.add.at(gap_time_us, powers, gaps)
    holes = np.flatnonzero(gaps >= HOLE_US)
    kinds = np.minimum(np.frexp((gaps[holes] // HOLE_US).astype(np.float64))[1] - 1, HOLE_CLASSES - 1)
    for kind in np.unique(kinds).tolist():
        chosen = holes[kinds == kind]
        listed = chosen[: max(0, LISTED - int(hole_counts[kind]))]
        rows = slice(int(hole_counts[kind]), int(hole_counts[kind]) + len(listed))
        hole_list[kind, rows, 0] = t[places[listed]] - gaps[listed]
        hole_list[kind, rows, 1] = gaps[listed]
        hole_counts[kind] += len(chosen)
    numbers[LATEST], numbers[EARLIEST] = t[-1], min(numbers[EARLIEST], t[0])
    numbers[COUNT] += len(t)


def count_pixels_plainly(t, x, y, p, width, height, numbers, pixels) -> None:
    """As `count_pixels`, of times that go on: equal events follow each other within a time, so that sorting finds them."""
    inside = (x < width) & (y < height)
    numbers[POSITIVE] += np.count_nonzero(p)
    numbers[OUTSIDE] += len(t) - np.count_nonzero(inside)
    if not inside.all():
        t, x, y, p = t[inside], x[inside], y[inside], p[inside]
    if not len(t):
        return
    pixel, side = y.astype(np.int64) * width + x, p.astype(np.int64)
    place = 2 * pixel + side
    moment = np.concatenate([[0], np.cumsum(t[1:] != t[:-1])])
    found = np.sort(moment * (2 * len(pixels)) + place)
    numbers[DUPLICATES] += np.count_nonzero(found[1:] == found[:-1])
    low, high = t.astype(np.uint32), ((t >> 32 ^ 0x8000) & 0xFFFF).astype(np.uint32)
    again = np.unique(place[: np.searchsorted(t, numbers[LATEST], "right")])  # at the last time of the events before
    stored = pixels[again // 2, HIGH_BITS] >> (16 * (again % 2)).astype(np.uint32) & np.uint32(0xFFFF)
    numbers[DUPLICATES] += np.count_nonzero((pixels[again // 2, again % 2] == low[0]) & (stored == high[0])) if len(again) else 0
    pixels[pixel, side] = low  # of equal places the last one stays
    for which in (0, 1):
        chosen = side == which
        others = pixels[pixel[chosen], HIGH_BITS] & np.uint32(0xFFFF0000 >> 16 * which)
        pixels[pixel[chosen], HIGH_BITS] = others | high[chosen] << np.uint32(16 * which)
    pixels[:, EVENTS] += np.bincount(pixel, minlength=len(pixels)).astype(np.uint32)


@compiled
def count_times(t, numbers, gap_time_us, hole_counts, hole_list):
    """Count steps back, gaps and holes."""
    latest, earliest = numbers[LATEST], numbers[EARLIEST]
    for i in range(len(t)):
        gap = t[i] - latest
        if gap > 0:
            if latest != NEVER:
                power = 0
                while 1 << power < gap:
                    power += 1
                gap_time_us[power] += gap
                if gap >= HOLE_US:
                    kind = 0
                    while kind < HOLE_CLASSES - 1 and HOLE_US << (kind + 1) <= gap:
                        kind += 1
                    if hole_counts[kind] < LISTED:
                        hole_list[kind, hole_counts[kind], 0] = latest
                        hole_list[kind, hole_counts[kind], 1] = gap
                    hole_counts[kind] += 1
            latest = t[i]
        elif gap < 0:
            if numbers[BACKWARDS] == 0:
                numbers[FIRST_BACKWARDS] = numbers[COUNT] + i
            numbers[BACKWARDS] += 1
            numbers[LARGEST_STEP] = max(numbers[LARGEST_STEP], -gap)
        earliest = min(earliest, t[i])
    numbers[LATEST], numbers[EARLIEST] = latest, earliest
    numbers[COUNT] += len(t)


@compiled
def count_bars(t, origin_us, doublings, bars):
    for i in range(len(t)):
        bars[(t[i] - origin_us) >> doublings] += 1


@compiled
def count_pixels(t, x, y, p, width, height, numbers, pixels):
    """Count polarities, events per pixel, events outside the sensor, and duplicates."""
    positive, outside, duplicates = 0, 0, 0
    for i in range(len(t)):
        positive += p[i]
        if x[i] >= width or y[i] >= height:
            outside += 1
            continue
        pixel = np.int64(y[i]) * width + np.int64(x[i])
        side = np.int64(p[i])
        low, high = np.uint32(t[i]), np.uint32((t[i] >> 32 ^ 0x8000) & 0xFFFF)
        highs = pixels[pixel, HIGH_BITS]
        duplicates += pixels[pixel, side] == low and (highs >> np.uint32(16 * side)) & np.uint32(0xFFFF) == high
        pixels[pixel, side] = low
        pixels[pixel, HIGH_BITS] = (highs & np.uint32(0xFFFF0000 >> (16 * side))) | high << np.uint32(16 * side)
        pixels[pixel, EVENTS] += np.uint32(1)
    numbers[POSITIVE] += positive
    numbers[OUTSIDE] += outside
    numbers[DUPLICATES] += duplicates
