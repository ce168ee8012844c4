"""Repairs of `saccade convert`: sort, drop duplicates, clip to the sensor, start at zero. Chunks in, chunks out, in bounded memory."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from saccade.files import explain_full_disk, read_exactly, scratch_file
from saccade.machine import compiled
from saccade.types import Events, InputError

RUN = 1 << 22  # events sorted at once: 64 MB, and as much again for the sorted copy
MOST_PIXELS = 1 << 25  # of a sensor: tables take 16 bytes a pixel, half a gigabyte
ROW = np.dtype([("t", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "?")], align=True)
NEVER = np.iinfo(np.int64).min  # no event has this time


@dataclass
class Mended:
    """What was repaired; complete when the chunks have been read to the end."""

    late: int = 0  # events that came after one with a later time, and were moved
    duplicates: int = 0  # removed
    outside: int = 0  # removed
    shift_us: int = 0  # subtracted from every time


def clip_to_sensor(chunks: Iterable[Events], mended: Mended) -> Iterator[Events]:
    """Remove events outside the sensor."""
    for events in chunks:
        inside = (events.x < events.width) & (events.y < events.height)
        mended.outside += len(events) - int(np.count_nonzero(inside))
        if inside.any():
            yield events if inside.all() else events[inside]


def drop_duplicates(chunks: Iterable[Events], mended: Mended) -> Iterator[Events]:
    """Keep only the first of events with the same time, pixel and polarity.

    An event is compared with the previous one of its pixel and polarity, so all duplicates are found if times don't run backwards
    (sort first). Events outside the sensor are passed on.
    """
    last_us = np.zeros(0, np.int64)
    for events in chunks:
        if len(last_us) != 2 * events.width * events.height:
            check_table(events.width, events.height)
            last_us = np.full(2 * events.width * events.height, NEVER)
        keep = np.empty(len(events), np.bool_)
        kept = _first_of_each(events.t, events.x, events.y, events.p, last_us, events.width, events.height, keep)
        mended.duplicates += len(events) - kept
        if kept:
            yield events if kept == len(events) else events[keep]


def start_at_zero(chunks: Iterable[Events], mended: Mended) -> Iterator[Events]:
    """Subtract the first event's time (sort first if times run backwards, or earlier events get negative times)."""
    begun = False
    for events in chunks:
        if not begun and len(events):
            begun, mended.shift_us = True, int(events.t[0])
        yield replace(events, t=events.t - mended.shift_us) if mended.shift_us else events


def check_table(width: int, height: int) -> None:
    """Refuse a sensor whose pixel table would fill the memory; no camera is so large, but a damaged header may state it."""
    if width * height > MOST_PIXELS:
        raise InputError(f"a sensor of {width} x {height} pixels is larger than any; state the true size with --width and --height")


def sort(chunks: Iterable[Events], mended: Mended, *, run: int = RUN, folder: Path | None = None) -> Iterator[Events]:
    """Sort by time; events of equal time keep their order, as with numpy.argsort(kind="stable") of the whole recording.

    External merge sort: runs of `run` events are sorted in memory, written to a scratch file (in `folder`, by default that for temporary
    files; 16 bytes an event), then merged.
    """
    where = folder or tempfile.gettempdir()
    latest_us, size, lengths = NEVER, (0, 0), []
    with scratch_file(folder) as file:
        for events in _pieces(chunks, run):
            size = events.width, events.height
            highest = np.maximum.accumulate(np.concatenate(([latest_us], events.t)))
            mended.late += int(np.count_nonzero(events.t < highest[1:]))
            latest_us = int(highest[-1])
            rows = np.empty(len(events), ROW)
            for name in "txyp":
                rows[name] = getattr(events, name)
            with explain_full_disk(where, "sorting needs room there for the whole recording; set TMPDIR to a larger folder"):
                file.write(_in_order(rows).data)
                file.flush()
            lengths.append(len(events))
        for rows in _merge(file, lengths, max(run // max(len(lengths), 1), 1 << 8)):
            columns = [np.ascontiguousarray(rows[name]) for name in "txyp"]
            yield Events(columns[0], columns[1], columns[2], columns[3], *size)


def _pieces(chunks: Iterable[Events], length: int) -> Iterator[Events]:
    """The same events in pieces of about this length."""
    parts: list[Events] = []
    for events in chunks:
        for first in range(0, len(events), length):
            parts.append(events[first : first + length])
            if sum(map(len, parts)) >= length:
                yield Events.join(parts)
                parts = []
    if parts:
        yield Events.join(parts)


def _in_order(rows: np.ndarray) -> np.ndarray:
    times = np.ascontiguousarray(rows["t"])
    if (times[1:] >= times[:-1]).all():
        return rows
    return np.take(rows, np.argsort(times, kind="stable"))


def _merge(file: IO[bytes], lengths: list[int], block: int) -> Iterator[np.ndarray]:
    """Merge sorted runs that lie one after the other in the file, holding about `block` rows of each.

    Of the loaded blocks, the one that ends first (by time, then by number of its run) bounds what can be returned: everything up to there
    is loaded. Its own run is returned to the end of its block, so each round makes progress, even if all times are equal.
    """
    ends = np.cumsum(lengths)
    place = [int(end) - length for end, length in zip(ends, lengths, strict=True)]
    loaded = {number: np.empty(0, ROW) for number, length in enumerate(lengths) if length}
    while loaded:
        for number, rows in loaded.items():
            if len(rows) == 0:
                count = min(block, int(ends[number]) - place[number])
                loaded[number] = _load(file, place[number], count)
                place[number] += count
        bound_us, bound_run = min((int(rows["t"][-1]), number) for number, rows in loaded.items())
        parts = []
        for number, rows in loaded.items():
            cut = int(np.searchsorted(rows["t"], bound_us, side="right" if number <= bound_run else "left"))
            parts.append(rows[:cut])
            loaded[number] = rows[cut:]
        loaded = {number: rows for number, rows in loaded.items() if len(rows) or place[number] < ends[number]}
        yield _in_order(np.concatenate(parts))


def _load(file: IO[bytes], first: int, count: int) -> np.ndarray:
    rows = np.empty(count, ROW)
    if not read_exactly(file, rows.view(np.uint8).data, first * ROW.itemsize):
        raise InputError("the scratch file of the sort became shorter while it was read; is the disk full?")
    return rows


@compiled
def _first_of_each(t, x, y, p, last_us, width, height, keep):
    """Mark events that don't repeat the previous one of their pixel and polarity; returns their number."""
    kept = 0
    for i in range(len(t)):
        keep[i] = True
        if x[i] < width and y[i] < height:
            cell = (int(y[i]) * width + int(x[i])) * 2 + p[i]
            keep[i] = last_us[cell] != t[i]
            last_us[cell] = t[i]
        kept += keep[i]
    return kept
