"""Prophesee's files, which all begin with a text header.

DAT (Gen1, 1 Mpx, PEOD): eight bytes an event: uint32 time, 14 bits x, 14 bits y, 4 bits polarity.
RAW (also of IDS, Lucid, SilkyEV): words of EVT2, EVT2.1 or EVT3, decoded in evt.py.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events.evt import FOREIGN, ORPHANS, START, WORD, Decoder
from saccade.events.reader import CHUNK, ArrayReader, IndexedReader, new_columns
from saccade.machine import compiled, compiler_pays
from saccade.types import Events, InputError

LONGEST_HEADER = 1 << 16
RECORD = 8  # bytes an event of DAT
DAT_TYPES = (0, 12)  # "2D event" and "CD event": the same bits
LAP_US = 1 << 32  # DAT's 32-bit clock overflows after 71 minutes
PROBES, MOST_PROBES = 256, 1 << 14  # events looked at to find overflows of the clock: at first, and at most
CHUNK_BYTES = 1 << 18  # of RAW

# Sensor generations, as they appear in plugin names ("hal_plugin_gen41_evk3") and in "sensor_generation 4.2".
SENSORS = {
    r"gen3|^3\.": (640, 480),
    r"genx320|^320": (320, 320),
    r"gen4|imx636|imx646|^4\.": (1280, 720),
}


def read_header(path: Path) -> tuple[dict[str, str], int]:
    """The header's fields by keyword (lower case), and the position of the first byte after it."""
    with path.open("rb") as file:
        data = file.read(LONGEST_HEADER)
    fields: dict[str, str] = {}
    position = 0
    while data[position : position + 1] == b"%":
        end = data.find(b"\n", position)
        if end < 0:
            raise InputError(f"{path}: the header line at byte {position} never ends; the file is cut off or no Prophesee file")
        keyword, _, value = data[position + 1 : end].decode("latin-1").strip().partition(" ")
        position = end + 1
        if keyword.lower() == "end":
            break
        fields[keyword.lower()] = value.strip()
        if data[position : position + 2] != b"% ":  # the first byte of event data may be a percent sign, too
            break
    return fields, position


def stated_size(fields: dict[str, str]) -> tuple[int, int] | None:
    """Width and height that the header states, or those of the sensor that it names; None if it does neither. A size of 0 states none."""
    if match := re.fullmatch(r"0*([1-9]\d{0,4})x0*([1-9]\d{0,4})", fields.get("geometry", "")):
        return int(match[1]), int(match[2])
    options = dict(re.findall(r"(width|height)=0*([1-9]\d{0,4})\b", fields.get("format", "")))
    options |= {name: fields[name] for name in ("width", "height") if re.fullmatch(r"0*[1-9]\d{0,4}", fields.get(name, ""))}
    if len(options) == 2:
        return int(options["width"]), int(options["height"])
    named = [fields.get(key, "").lower() for key in ("sensor_name", "plugin_name", "sensor_generation", "generation")]
    return next((size for pattern, size in SENSORS.items() for name in named if re.search(pattern, name)), None)


class DatReader(ArrayReader):
    """Reads with pread: as fast as a memory map, but a file that shrinks while it is read is an error instead of a crash."""

    format: ClassVar[str] = "DAT"

    def __init__(self, path: Path, *, width: int | None = None, height: int | None = None) -> None:
        fields, position = read_header(path)
        with path.open("rb") as file:
            kind_and_size = file.read(position + 2)[position:]
        if position == 0 or len(kind_and_size) < 2:
            raise InputError(f"{path}: no DAT file: expected header lines that begin with %, then two bytes for event type and size")
        kind, size = kind_and_size
        if kind not in DAT_TYPES or size != RECORD:
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
        t, x, y, p = new_columns(n)
        (_unpack if compiler_pays(last) else _unpack_plainly)(self._buffer[:n], t, x, y, p)
        cuts = [first, *(lap for lap in self._laps if first < lap < last), last]
        for begin, end in pairwise(cuts):
            if laps := bisect_right(self._laps, begin):
                t[begin - first : end - first] += laps * LAP_US
        return Events(t, x, y, p, self.width, self.height)

    def _read(self, records: np.ndarray, first: int) -> None:
        """Fill the array with records, beginning with number `first`."""
        got = os.preadv(self._file.fileno(), [records.view(np.uint8).data], self._first + first * RECORD)
        if got != records.nbytes:
            raise InputError(f"{self._file.name}: became shorter while it was read; expected {self._count} events")

    def _clock(self, i: int) -> int:
        record = os.pread(self._file.fileno(), 4, self._first + i * RECORD)
        if len(record) != 4:
            raise InputError(f"{self._file.name}: became shorter while it was read; expected {self._count} events")
        return int.from_bytes(record, "little")

    def _find_laps(self) -> list[int]:
        """Numbers of the events at which the 32-bit clock overflowed, found by looking at a few events.

        Between two events less than half a lap apart, an overflow shows as a large step back. So where two neighbouring probes are more
        than an eighth of a lap apart, the interval between them is halved.
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


def _unpack_plainly(records: np.ndarray, t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> None:
    t[:], word = records[:, 0], records[:, 1]
    x[:], y[:], p[:] = word & 0x3FFF, (word >> 14) & 0x3FFF, (word >> 28) != 0


@compiled
def _unpack(records, t, x, y, p):
    for i in range(len(records)):
        t[i] = records[i, 0]
    for i in range(len(records)):
        word = records[i, 1]
        x[i] = word & 0x3FFF
        y[i] = (word >> 14) & 0x3FFF
        p[i] = (word >> 28) != 0


class RawReader(IndexedReader):
    """Marks are (position of a word in the file, *state of the decoder)."""

    format: ClassVar[str] = "RAW"
    mark_length: ClassVar[int] = 1 + len(START)

    def __init__(self, path: Path, *, width: int | None = None, height: int | None = None, index_path: Path | None = None) -> None:
        fields, self._first = read_header(path)
        self._encoding = _encoding(path, fields)
        self._swapped = self._encoding == "EVT2.1" and _is_swapped(path, fields, self._first)
        stated = (width, height) if width and height else stated_size(fields)
        super().__init__(path, *(stated or (0, 0)), index_path=index_path)
        self.format = f"RAW {self._encoding}"  # type: ignore[misc]  # one class, three encodings
        self._size = path.stat().st_size
        self._file = path.open("rb")
        if stated is None:
            self.width, self.height = self.index.extent
            self.note(
                f"the header doesn't state the sensor; {self.width} x {self.height} is the extent of the events (state width= and height=)"
            )

    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        position, *state = mark or (self._first, *START)
        decoder = Decoder(self._encoding, tuple(state), self._swapped)
        while data := os.pread(self._file.fileno(), CHUNK_BYTES, position):
            word = WORD[self._encoding]
            words = np.frombuffer(data, word, len(data) // word.itemsize)
            begin = (position, *decoder.state)
            t, x, y, p = decoder.decode(words)
            position += len(data)
            self.fraction = (position - self._first) / max(self._size - self._first, 1)
            if len(t):
                yield begin, Events(t, x, y, p, self.width, self.height)
            if len(data) < CHUNK_BYTES:
                if odd := len(data) % word.itemsize:
                    self.note(f"cut off inside a word: the last {odd} bytes are left out")
                break
        if decoder.state[ORPHANS]:
            self.note(f"{decoder.state[ORPHANS]} events without a known time, row or column are left out")
        if decoder.state[FOREIGN]:
            self.note(
                f"{decoder.state[FOREIGN]} words of a kind that {self._encoding} doesn't define are left out; the file may be damaged"
            )

    def close(self) -> None:
        self._file.close()


def _encoding(path: Path, fields: dict[str, str]) -> str:
    """EVT2, EVT2.1 or EVT3, from "evt 3.0" or "format EVT21;height=720;width=1280"."""
    stated = fields.get("format", "").partition(";")[0].upper() or "EVT" + fields.get("evt", "?")
    digits = "".join(re.findall(r"\d", stated)).removesuffix("0") if stated.startswith("EVT") else ""
    encoding = {"2": "EVT2", "21": "EVT2.1", "3": "EVT3"}.get(digits)
    if encoding is None:
        raise InputError(f"{path}: a RAW file whose header states the encoding {stated!r}; expected EVT2, EVT2.1 or EVT3")
    return encoding


def _is_swapped(path: Path, fields: dict[str, str], first: int) -> bool:
    """Whether the upper half of each EVT2.1 word comes first: as stated, else the order that gives more words of a defined kind, and more
    events that come after a time."""
    if match := re.search(r"endianness=(\w+)", fields.get("format", "")):
        return match[1] == "legacy"
    with path.open("rb") as file:
        file.seek(first)
        data = file.read(1 << 16)
    halves = np.frombuffer(data, "<u4", len(data) // 8 * 2).reshape(-1, 2) >> 28
    defined = np.isin(halves, (0x0, 0x1, 0x8, 0xA, 0xE, 0xF)).sum(axis=0) + (halves == 0x8).sum(axis=0)
    timed = np.cumsum(halves == 0x8, axis=0) > 0
    defined += ((halves <= 0x1) & timed).sum(axis=0)
    return bool(defined[0] > defined[1])
