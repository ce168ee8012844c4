"""WINDOW -> FRAME: events counted per polarity, time bin and pixel (the paper's input)."""

import logging
from math import ceil
from typing import Literal

import numpy as np
from jaxtyping import Int64, UInt8

from saccade.machine import compiled
from saccade.representation.canvas import SCALE_STEPS, Canvas, whole_sensor
from saccade.types import Events, InputError, Window

log = logging.getLogger("saccade")

Histogram = UInt8[np.ndarray, "channels H W"]  # 2 polarities x bins, all bins of polarity 0 first
BinCounts = Int64[np.ndarray, "2 bins"]  # per bin: events, and how many of them lay outside the sensor
Mode = Literal["exact", "published"]
MODES = ("exact", "published")

BLOCK = 1024  # events that are checked together: the checks vectorise, and what they read is still in the cache for the counting
LONGEST_US = 1 << 40  # 12 days; keeps (t - start) * bins inside int64
MOST_BINS = 1 << 10
SIXTEENTHS = 16  # to which factors are rounded: windows of a grid differ by 1 us, and counts mustn't show it


def stacked_histogram(window: Window, bins: int = 10, clip: int = 10, *, canvas: Canvas | None = None, mode: Mode = "exact") -> Histogram:
    """Bins divide the window, not the span of its events: equal motion looks equal at any rate.

    Counts end at CLIP. Events outside the sensor are left out, and their number is logged. `published` is what published weights were
    trained on: bins from the first to the last event, a counter that wraps at 256 before it is clipped.
    """
    check_settings(bins, clip, mode)
    canvas = canvas or whole_sensor(window.width, window.height)
    histogram = np.zeros((2 * bins, canvas.height, canvas.width), np.uint8)
    counted = np.zeros((2, bins), np.int64)
    add_events(histogram, counted, window, window.start_us, window.end_us, clip, canvas, mode)
    if counted[1].any():
        log.warning("histogram: %d of %d events lie outside the sensor %d x %d", counted[1].sum(), len(window), window.width, window.height)
    return histogram


def held(histogram: Histogram, length_us: int, trained_us: int, clip: int = 10) -> Histogram:
    """Counts of a short window as if what it holds had gone on for TRAINED_US: what a network that knows such windows expects to see.

    The bins of the long window are filled from the newest one back with those of the short one, over and over: events per time and the
    length of a bin stay those of the training. A window shorter than a bin fills all alike, its counts multiplied, in whole numbers that
    end at CLIP. Windows as long as in training, or longer, are left as they are.
    """
    if length_us >= trained_us:
        return histogram
    bins = len(histogram) // 2
    parts = max(1, ceil(bins * length_us / trained_us - 0.51))  # bins as long as in training; halves, and a little more, rounded down
    starts = [part * bins // parts for part in range(parts)]
    counts = np.add.reduceat(histogram.reshape(2, bins, *histogram.shape[1:]), starts, axis=1, dtype=np.uint32)
    sixteenths = round(SIXTEENTHS * trained_us * parts / (bins * length_us))  # so that a microsecond more or less changes nothing
    counts = np.minimum((counts * sixteenths + SIXTEENTHS // 2) // SIXTEENTHS, clip).astype(np.uint8)
    newest_last = [parts - 1 - age % parts for age in reversed(range(bins))]
    return np.ascontiguousarray(counts[:, newest_last]).reshape(histogram.shape)


def check_settings(bins: int, clip: int, mode: Mode) -> None:
    if not 1 <= bins <= MOST_BINS or int(bins) != bins:
        raise InputError(f"histogram: bins={bins!r} must be a whole number from 1 to {MOST_BINS}")
    if not 1 <= clip <= 255 or int(clip) != clip:
        raise InputError(f"histogram: clip={clip!r} must be a whole number from 1 to 255, what a byte can hold")
    if mode not in MODES:
        raise InputError(f"histogram: unknown mode={mode!r}; expected one of {', '.join(MODES)}")


def add_events(
    histogram: Histogram, counted: BinCounts, events: Events, start_us: int, end_us: int, clip: int, canvas: Canvas, mode: Mode = "exact"
) -> None:
    """Count EVENTS onto a histogram of [start_us, end_us), in place: sliding frames grow by the newest events only.

    A saturating byte equals a wide counter clipped at the end, because counts only grow; and it touches an eighth of the memory.
    """
    bins = len(histogram) // 2
    if (events.width, events.height) != (canvas.sensor_width, canvas.sensor_height):
        sensor = f"{canvas.sensor_width} x {canvas.sensor_height}"
        raise InputError(f"histogram: events of a {events.width} x {events.height} sensor on a canvas made for {sensor}; make one for it")
    if not bins <= end_us - start_us <= LONGEST_US:
        raise InputError(f"histogram: window [{start_us}, {end_us}) us must be {bins} us (one per bin) to {LONGEST_US} us long")
    columns, rows = canvas.columns, canvas.rows
    steps = None if canvas.steps == SCALE_STEPS else canvas.steps  # None = another type: numba compiles a kernel without the scaling
    if mode == "published":
        if len(events):
            first_us, last_us = events.t.min(), events.t.max()
            _add_published(events.t, events.x, events.y, events.p, histogram, counted, columns, rows, first_us, last_us)
            np.minimum(histogram, clip, out=histogram)
        return
    done = _add_exact(events.t, events.x, events.y, events.p, histogram, counted, columns, rows, steps, start_us, end_us, np.uint8(clip))
    if done < len(events):
        raise InputError(f"histogram: event {done} at {events.t[done]} us is not in its window [{start_us}, {end_us}) us; use windows()")


@compiled
def _add_exact(t, x, y, p, histogram, counted, columns, rows, steps, start_us, end_us, clip):
    """Blocks of events that share a bin, so that nothing is divided per event. Returns how many events lie before a misplaced one."""
    bins = len(histogram) // 2
    width = histogram.shape[2]
    plane = histogram.shape[1] * width
    flat = histogram.reshape(-1)
    i = 0
    while i < len(t):
        if t[i] < start_us or t[i] >= end_us:
            return i
        # event time t is in bin j for t - start from ceil(j * duration / bins) to the same of j + 1
        j = (t[i] - start_us) * bins // (end_us - start_us)
        low = start_us + (j * (end_us - start_us) + bins - 1) // bins
        high = start_us + ((j + 1) * (end_us - start_us) + bins - 1) // bins
        stop = i + _run_length(t[i : i + BLOCK], low, high)
        cells = flat[j * plane :]
        counted[0, j] += stop - i
        inside = _inside(x[i:stop], y[i:stop], len(columns), len(rows))
        if steps is None:
            if inside:
                _add_straight(x[i:stop], y[i:stop], p[i:stop], cells, width, bins * plane, clip)
        elif inside and steps:
            _add_scaled(x[i:stop], y[i:stop], p[i:stop], cells, width, bins * plane, clip, steps)
        if not inside or steps == 0:
            counted[1, j] += _add_mapped(x[i:stop], y[i:stop], p[i:stop], cells, columns, rows, width, bins * plane, clip)
        i = stop
    return i


@compiled
def _run_length(t, low, high):
    """How many of the first events are in [low, high). The first loop has no exit, so it vectorises: an event outside sets the sign bit."""
    outside = np.int64(0)
    for i in range(len(t)):
        outside |= (t[i] - low) | (high - 1 - t[i])
    if outside >= 0:
        return len(t)
    for i in range(len(t)):
        if t[i] < low or t[i] >= high:
            return i
    return len(t)


@compiled
def _inside(x, y, width, height):
    outside = np.int32(0)
    last_column, last_row = np.int32(width - 1), np.int32(height - 1)
    for i in range(len(x)):
        outside |= np.int32(last_column - np.int32(x[i])) | np.int32(last_row - np.int32(y[i]))
    return outside >= 0


@compiled
def _add_straight(x, y, p, cells, width, polarity_stride, clip):
    """For events inside the sensor. Unsigned indices: numba then leaves out its test for those below zero."""
    width, polarity_stride = np.uint64(width), np.uint64(polarity_stride)
    for i in range(len(x)):
        cell = np.uint64(y[i]) * width + np.uint64(x[i]) + np.uint64(p[i]) * polarity_stride
        count = cells[cell]
        cells[cell] = count + (count < clip)


@compiled
def _add_scaled(x, y, p, cells, width, polarity_stride, clip, steps):
    """For events inside the sensor. Multiplying takes less time than looking up; unsigned, so that numba tests no index for a minus."""
    width, polarity_stride, steps = np.uint64(width), np.uint64(polarity_stride), np.uint64(steps)
    for i in range(len(x)):
        column, row = np.uint64(x[i]) * steps // np.uint64(SCALE_STEPS), np.uint64(y[i]) * steps // np.uint64(SCALE_STEPS)
        cell = row * width + column + np.uint64(p[i]) * polarity_stride
        count = cells[cell]
        cells[cell] = count + (count < clip)


@compiled
def _add_mapped(x, y, p, cells, columns, rows, width, polarity_stride, clip):
    """For any events and tables. Returns how many lie outside the sensor."""
    outside = 0
    for i in range(len(x)):
        if x[i] >= len(columns) or y[i] >= len(rows):
            outside += 1
            continue
        column, row = columns[np.uint64(x[i])], rows[np.uint64(y[i])]
        if (column | row) >= 0:  # -1 = dropped
            cell = np.uint64(row * width + column) + np.uint64(p[i]) * np.uint64(polarity_stride)
            count = cells[cell]
            cells[cell] = count + (count < clip)
    return outside


@compiled
def _add_published(t, x, y, p, histogram, counted, columns, rows, first_us, last_us):
    """In float32, like torch divides integers: rounding decides the bin of events at its border."""
    bins = len(histogram) // 2
    span = np.float32(max(last_us - first_us, 1))
    for i in range(len(t)):
        j = min(int(np.float32(t[i] - first_us) / span * np.float32(bins)), bins - 1)
        counted[0, j] += 1
        if x[i] >= len(columns) or y[i] >= len(rows):
            counted[1, j] += 1
        elif columns[x[i]] >= 0 and rows[y[i]] >= 0:
            histogram[j + bins * int(p[i]), rows[y[i]], columns[x[i]]] += np.uint8(1)  # wraps
