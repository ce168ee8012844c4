"""Prophesee DAT (Gen1, 1 Mpx, PEOD): a text header, then eight bytes an event: uint32 time, 14 bits x, 14 bits y, 4 bits polarity."""

import os
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events.prophesee import read_header, stated_size
from saccade.events.reader import CHUNK, ArrayReader
from saccade.machine import compiled
from saccade.types import Events, InputError

RECORD = 8
KINDS = (0, 12)  # "2D event" and "CD event": the same bits
LAP_US = 1 << 32  # the 32-bit clock starts again after 71 minutes
PROBES, MOST_PROBES = 256, 1 << 14  # places at which laps are looked for; times in wild disorder end at the larger number


class DatReader(ArrayReader):
    """Reads by position with pread: as fast as a memory map, but a file that shrinks meanwhile is an error instead of a crash."""

    format: ClassVar[str] = "DAT"

    def __init__(self, path: Path, *, width: int | None = None, height: int | None = None) -> None:
        fields, position = read_header(path)
        with path.open("rb") as file:
            kind_and_size = file.read(position + 2)[position:]
        if position == 0 or len(kind_and_size) < 2:
            raise InputError(f"{path}: no DAT file: expected header lines that begin with %, then two bytes for event type and size")
        kind, size = kind_and_size
        if kind not in KINDS or size != RECORD:
            raise InputError(f"{path}: DAT of event type {kind} with {size} bytes an event; expected type 0 or 12 (CD events) with 8 bytes")
        if (version := fields.get("version", "2").split(".")[0]) not in ("2", "3"):
            raise InputError(f"{path}: DAT version {version}, whose events have another layout; expected version 2")
        self._file = path.open("rb")
        self._first = position + 2
        data_bytes = os.fstat(self._file.fileno()).st_size - self._first
        self._count = data_bytes // RECORD
        self._buffer = np.empty((CHUNK, 2), np.uint32)
        self._laps = self._find_laps()
        stated = (width, height) if width and height else stated_size(fields)
        super().__init__(path, *(stated or (0, 0)))
        if data_bytes % RECORD:
            self.note(f"cut off inside an event: the last {data_bytes % RECORD} bytes are left out")
        if stated is None:
            self._infer_size()

    @property
    def count(self) -> int:
        return self._count

    def time_at(self, i: int) -> int:
        return self._clock(i) + bisect_right(self._laps, i) * LAP_US

    def load(self, first: int, last: int) -> Events:
        parts = [self._load_chunk(i, min(i + CHUNK, last)) for i in range(first, last, CHUNK)]
        return Events.join(parts) if parts else Events.empty(self.width, self.height)

    def close(self) -> None:
        self._file.close()

    def _load_chunk(self, first: int, last: int) -> Events:
        n = last - first
        self._read(self._buffer[:n], first)
        t, x, y, p = np.empty(n, np.int64), np.empty(n, np.uint16), np.empty(n, np.uint16), np.empty(n, np.bool_)
        _unpack(self._buffer[:n], t, x, y, p)
        cuts = [first, *(lap for lap in self._laps if first < lap < last), last]
        for begin, end in pairwise(cuts):
            if laps := bisect_right(self._laps, begin):
                t[begin - first : end - first] += laps * LAP_US
        return Events(t, x, y, p, self.width, self.height)

    def _read(self, records: np.ndarray, first: int) -> None:
        """Fill the array with records from number `first` on."""
        got = os.preadv(self._file.fileno(), [records.view(np.uint8).data], self._first + first * RECORD)
        if got != records.nbytes:
            raise InputError(f"{self._file.name}: became shorter while it was read; expected {self._count} events")

    def _clock(self, i: int) -> int:
        record = os.pread(self._file.fileno(), 4, self._first + i * RECORD)
        if len(record) != 4:
            raise InputError(f"{self._file.name}: became shorter while it was read; expected {self._count} events")
        return int.from_bytes(record, "little")

    def _find_laps(self) -> list[int]:
        """Numbers of the events at which the clock has started again, from few events.

        Between two that lie less than half a lap apart it shows as a large step back. So where a probe is an eighth of a lap after
        the one before, or before it, those between are looked at too.
        """
        laps: list[int] = []
        seen: set[int] = set()
        probes = sorted({i * (self._count - 1) // PROBES for i in range(PROBES + 1)}) if self._count else []
        pairs = list(pairwise(probes))[::-1]
        while pairs:
            begin, end = pairs.pop()
            seen.update((begin, end))
            step = self._clock(end) - self._clock(begin)
            if end - begin > 1 and abs(step) > LAP_US // 8 and len(seen) < MOST_PROBES:
                middle = (begin + end) // 2
                pairs += [(middle, end), (begin, middle)]
            elif step < -LAP_US // 2:
                laps.append(end)
        return laps

    def _infer_size(self) -> None:
        for events in self.stream():
            if len(events):
                self.width = max(self.width, int(events.x.max()) + 1)
                self.height = max(self.height, int(events.y.max()) + 1)
        self.note(
            f"the header doesn't state the sensor; {self.width} x {self.height} is the extent of the events (state width= and height=)"
        )


@compiled
def _unpack(records, t, x, y, p):
    for i in range(len(records)):
        t[i] = records[i, 0]
    for i in range(len(records)):
        word = records[i, 1]
        x[i] = word & 0x3FFF
        y[i] = (word >> 14) & 0x3FFF
        p[i] = (word >> 28) != 0
