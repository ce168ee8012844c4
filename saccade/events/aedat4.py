"""AEDAT4 (iniVation's DV: DVXplorer, DAVIS): a header, then packets of several streams, each a compressed FlatBuffer.

By hand: the packages that decode it are slower, read only from the first byte, or hold everything in memory.
"""

import os
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events.compression import LARGEST, UnpackingLimit, decompress
from saccade.events.reader import IndexedReader
from saccade.types import Events, InputError

MAGIC = b"#!AER-DAT4.0\r\n"
COMPRESSIONS = ("none", "lz4", "lz4", "zstd", "zstd")  # the second of each: a higher compression level
EVENT = np.dtype({"names": ["t", "x", "y", "p"], "formats": ["<i8", "<u2", "<u2", "u1"], "offsets": [0, 8, 10, 12], "itemsize": 16})
ENOUGH = 1 << 16  # events: packets hold 10 ms each, so they are joined up to this many


class Aedat4Reader(IndexedReader):
    """Marks are (position of a packet in the file,)."""

    format: ClassVar[str] = "AEDAT4"

    def __init__(self, path: Path, *, index_path: Path | None = None) -> None:
        self._file = path.open("rb")
        try:
            self._size = path.stat().st_size
            header, self._first = self._read_header(path)
            self._compression, table, streams = _parse_header(path, header)
            self._stream, width, height = streams[0]
            super().__init__(path, width, height, index_path=index_path)
            self._end = self._data_end(table)
            if len(streams) > 1:
                self.note(f"event streams {', '.join(str(stream) for stream, _, _ in streams)}; reading {self._stream}, the first")
            if not (width and height):
                self.width, self.height = self.index.extent
                self.note(f"the header doesn't state the sensor; {self.width} x {self.height} is the extent of the events")
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        parts: list[np.ndarray] = []
        begin = mark[0] if mark else self._first
        for position, records in self._packets(begin):
            if not parts:
                begin = position
            parts.append(records)
            if sum(map(len, parts)) >= ENOUGH:
                yield (begin,), self._events(parts)
                parts = []
        if parts:
            yield (begin,), self._events(parts)

    def _events(self, parts: list[np.ndarray]) -> Events:
        # Column by column: joining records, which have padding, took twice as long.
        t, x, y, p = (np.concatenate([part[name] for part in parts]) for name in "txyp")
        return Events(t, x, y, p != 0, self.width, self.height)

    def _packets(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        """Position and events of every packet of the chosen stream that isn't empty."""
        limit = UnpackingLimit(self._size)
        while position < self._end:
            head = os.pread(self._file.fileno(), 8, position)
            stream, size = struct.unpack("<ii", head) if len(head) == 8 else (0, self._size)
            if size < 0:
                raise InputError(f"{self.path}: the packet at byte {position} states {size} bytes; the file is damaged")
            if position + 8 + size > self._end:
                self.note(f"cut off inside the packet at byte {position}: its {self._end - position} bytes are left out")
                return
            if stream == self._stream:
                records = self._decode(position, size, limit)
                if len(records):
                    yield position, records
            position += 8 + size
            self.fraction = (position - self._first) / max(self._end - self._first, 1)

    def _decode(self, position: int, size: int, limit: UnpackingLimit) -> np.ndarray:
        try:
            if size > LARGEST:
                raise InputError(f"{size >> 20} MB")
            data = os.pread(self._file.fileno(), size, position + 8)
            unpacked = decompress(self._compression, data)
            limit.spend(len(unpacked), 1)
            return FlatBuffer(unpacked, b"EVTS").structs(0, EVENT)
        except InputError as error:
            raise InputError(f"{self.path}: the packet at byte {position} can't be decoded: {error}") from error

    def _read_header(self, path: Path) -> tuple[bytes, int]:
        head = self._file.read(len(MAGIC) + 4)
        if not head.startswith(MAGIC):
            raise InputError(f"{path}: begins with {head[:14]!r}; an AEDAT4 file begins with {MAGIC!r}")
        size = int.from_bytes(head[len(MAGIC) :], "little")
        header = self._file.read(size) if len(head) == len(MAGIC) + 4 and size <= self._size else b""
        if not header or len(header) < size:
            raise InputError(f"{path}: ends inside its header; the recording is cut, nothing of it can be read")
        return header, len(MAGIC) + 4 + size

    def _data_end(self, table: int) -> int:
        """Packets end where the table of packets begins. The recorder writes it last, so it shows whether the recording is complete."""
        if self._first <= table <= self._size:
            if table == self._size:
                self.note("the table of packets at the end is missing: the recording is cut, but all its packets are there")
            return table
        if table < 0:
            self.note("the recorder didn't finish this file: reading up to its last whole packet")
        else:
            self.note(f"the recording is cut: {self._size} bytes of more than {table}; reading up to its last whole packet")
        return self._size


def _parse_header(path: Path, header: bytes) -> tuple[str, int, list[tuple[int, int, int]]]:
    """Compression, position of the table of packets, and (number, width, height) of every stream of events."""
    try:
        root = FlatBuffer(len(header).to_bytes(4, "little") + header, b"IOHE")
        compression, table, text = root.integer(0, 4, 0), root.integer(1, 8, -1), root.text(2)
        if not 0 <= compression < len(COMPRESSIONS):
            raise InputError(f"compression {compression}; expected 0 to {len(COMPRESSIONS) - 1}")
        if b"<!" in text:  # no recorder declares entities, which could expand without limit
            raise InputError("its XML holds declarations")
        tree = ElementTree.fromstring(text)
    except (InputError, ElementTree.ParseError, ValueError) as error:
        raise InputError(f"{path}: the AEDAT4 header is damaged ({error})") from error
    streams: list[tuple[int, int, int]] = []
    kinds = []
    for node in tree.findall("./node[@name='outInfo']/node"):
        kind = next((item.text or "" for item in node.findall("attr[@key='typeIdentifier']")), "")
        kinds.append(kind)
        name = node.get("name", "")
        if kind == "EVTS" and name.isdecimal() and len(name) < 10:
            streams.append((int(name), _size_attribute(node, "sizeX"), _size_attribute(node, "sizeY")))
    if not streams:
        raise InputError(f"{path}: no stream of events (EVTS); found {', '.join(kinds) or 'none'}")
    return COMPRESSIONS[compression], table, sorted(streams)


def _size_attribute(node: ElementTree.Element, key: str) -> int:
    text = next((item.text or "" for item in node.findall(f"node[@name='info']/attr[@key='{key}']")), "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


class FlatBuffer:
    """The root table of a size-prefixed FlatBuffer; every offset is checked, because the data may be damaged."""

    def __init__(self, data: bytes, identifier: bytes) -> None:
        self._data = data
        if data[8:12] != identifier:
            raise InputError(f"expected a {identifier.decode()} buffer, found {data[8:12]!r}")
        self._table = 4 + self._number(4, 4)
        self._fields = self._table - self._number(self._table, 4, signed=True)
        self._length = self._number(self._fields, 2)

    def _number(self, at: int, size: int, *, signed: bool = False) -> int:
        if not 0 <= at <= len(self._data) - size:
            raise InputError(f"an offset points to byte {at} of {len(self._data)}")
        return int.from_bytes(self._data[at : at + size], "little", signed=signed)

    def _field(self, number: int) -> int:
        """Position of field `number`, 0 if it is absent."""
        slot = 4 + 2 * number
        offset = self._number(self._fields + slot, 2) if slot + 2 <= self._length else 0
        return self._table + offset if offset else 0

    def integer(self, number: int, size: int, default: int) -> int:
        at = self._field(number)
        return self._number(at, size, signed=True) if at else default

    def _vector(self, number: int, itemsize: int) -> tuple[int, int]:
        """Position of the first element, and number of elements."""
        at = self._field(number)
        if not at:
            return 0, 0
        start = at + self._number(at, 4)
        count = self._number(start, 4)
        if start + 4 + count * itemsize > len(self._data):
            raise InputError(f"a vector of {count} elements at byte {start} doesn't fit into {len(self._data)} bytes")
        return start + 4, count

    def text(self, number: int) -> bytes:
        start, count = self._vector(number, 1)
        return self._data[start : start + count]

    def structs(self, number: int, kind: np.dtype) -> np.ndarray:
        start, count = self._vector(number, kind.itemsize)
        return np.frombuffer(self._data, kind, count, start) if count else np.zeros(0, kind)
