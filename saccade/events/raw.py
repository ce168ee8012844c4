"""Prophesee RAW files (also IDS, Lucid, SilkyEV): a text header that names the encoding, then words of EVT2, EVT2.1 or EVT3."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events.evt import FOREIGN, ORPHANS, START, WORD, Decoder
from saccade.events.prophesee import read_header, stated_size
from saccade.events.reader import IndexedReader
from saccade.types import Events, InputError

CHUNK_BYTES = 1 << 18


class RawReader(IndexedReader):
    """Marks are (position of the word in the file, the decoder's state)."""

    format: ClassVar[str] = "RAW"

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
            self.note(f"{decoder.state[ORPHANS]} events before the first time, row or vector base can't be placed and are left out")
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
    """Whether the upper half of each EVT2.1 word comes first: as stated, or where the words' kinds make sense."""
    if match := re.search(r"endianness=(\w+)", fields.get("format", "")):
        return match[1] == "legacy"
    with path.open("rb") as file:
        file.seek(first)
        data = file.read(1 << 16)
    halves = np.frombuffer(data, "<u4", len(data) // 8 * 2).reshape(-1, 2) >> 28
    defined = np.isin(halves, (0x0, 0x1, 0x8, 0xA, 0xE, 0xF)).sum(axis=0) + (halves == 0x8).sum(axis=0)
    return bool(defined[0] > defined[1])
