"""ROS 1 bags and MCAP files -> messages, read record by record.

By hand: `rosbags` needs the index at the end, which a cut recording lacks, and `mcap`'s StreamReader decompresses without a limit (13 MB of
LZ4 that state 4 KB filled 3 GB), trusts lengths inside records, loads attachments, and gives no position to start again from.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from saccade.events.compression import LARGEST, UnpackingLimit, decompress, room
from saccade.types import InputError

BAG_MAGIC = b"#ROSBAG V2.0\n"
MCAP_MAGIC = b"\x89MCAP0\r\n"
MessagePlace = tuple[int, int]  # position of its record or chunk in the file, offset inside the chunk


@dataclass(frozen=True)
class Channel:
    topic: str
    kind: str  # message type without "/msg"
    encoding: str  # "ros1" or "cdr"


@dataclass(frozen=True)
class Message:
    place: MessagePlace
    channel: int
    data: memoryview


@dataclass
class Bag:
    """An open recording, the channels read so far, and where it is cut off."""

    file: BinaryIO
    size: int
    channels: dict[int, Channel] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)
    problem: str = ""  # why reading stopped before the end of the file
    is_mcap: bool = False
    limit: UnpackingLimit = field(init=False)  # of the pass under way

    def __post_init__(self) -> None:
        self.limit = UnpackingLimit(self.size)

    def messages(self, place: MessagePlace | None = None) -> Iterator[Message]:
        self.limit = UnpackingLimit(self.size)
        first, offset = place or (len(MCAP_MAGIC if self.is_mcap else BAG_MAGIC), 0)
        walk, handle = (mcap_records, self._mcap_record) if self.is_mcap else (bag_records, self._bag_record)
        for position, kind, body in self._top(walk, first):
            yield from handle(kind, body, (position, offset), walk)
            offset = 0

    def read_index(self) -> bool:
        """Read the channels from the index at the end; False if it is incomplete: the recording was cut or never finished."""
        return self._mcap_index() if self.is_mcap else self._bag_index()

    def _bag_index(self) -> bool:
        """The first record states the index's position and its numbers of connections and chunks."""
        head = bag_records(self._read, len(BAG_MAGIC), self.size)
        fields = head[0] if head and isinstance(head[0], dict) else {}
        start, connections, chunks = (
            _unsigned(fields.get(name), size) for name, size in ((b"index_pos", 8), (b"conn_count", 4), (b"chunk_count", 4))
        )
        if not 0 < start < self.size:
            return False
        found = {b"\x06": 0, b"\x07": 0}
        for position, kind, body in self._top(bag_records, start):
            operation = kind.get(b"op", b"") if isinstance(kind, dict) else b""
            if operation == b"\x07":
                list(self._bag_record(kind, body, (position, 0), bag_records))
            found[operation] = found.get(operation, 0) + 1
        return not self.problem and (found[b"\x07"], found[b"\x06"]) == (connections, chunks)

    def _mcap_index(self) -> bool:
        """The last record states the summary's position; the file ends with the magic bytes."""
        footer = self.size - len(MCAP_MAGIC) - 29  # of fixed size: opcode, length, two positions, checksum
        if footer < 0 or bytes(self._read(self.size - len(MCAP_MAGIC), len(MCAP_MAGIC))) != MCAP_MAGIC:
            return False
        opcode, _, start = struct.unpack("<BQQ", self._read(footer, 17))
        if opcode != FOOTER:
            return False
        for position, kind, body in self._top(mcap_records, start or footer):
            if kind in (SCHEMA, CHANNEL):
                list(self._mcap_record(kind, body, (position, 0), mcap_records))
        return not self.problem

    def _top(self, walk: "Walk", position: int) -> "Iterator[tuple[int, RecordHead, memoryview]]":
        """Top-level records of the file, one in memory at a time."""
        while position < self.size:
            record = walk(self._read, position, self.size)
            if record is None:
                self.problem = f"cut off inside the record at byte {position}: its {self.size - position} bytes are left out"
                return
            self.limit.spend(records=1)
            kind, body, end = record
            if self.is_mcap and kind == FOOTER:
                return
            yield position, kind, body
            position = end

    def _read(self, position: int, size: int) -> memoryview:
        if size > LARGEST:
            raise InputError(f"the record at byte {position} states {size >> 20} MB; expected at most {LARGEST >> 20}")
        return memoryview(os.pread(self.file.fileno(), size, position))

    def _inner(self, walk: "Walk", chunk: bytes, offset: int, position: int) -> "Iterator[tuple[int, RecordHead, memoryview]]":
        view = memoryview(chunk)
        while offset < len(view):
            record = walk(lambda at, size: view[at : at + size], offset, len(view))
            if record is None:
                raise InputError(f"the chunk at byte {position} ends inside a record; it is damaged")
            self.limit.spend(records=1)
            kind, body, end = record
            yield offset, kind, body
            offset = end

    def _bag_record(self, kind: "RecordHead", body: memoryview, place: MessagePlace, walk: "Walk") -> Iterator[Message]:
        assert isinstance(kind, dict)
        operation = kind.get(b"op")
        if operation == b"\x07":
            number, topic = _unsigned(kind.get(b"conn"), 4), kind.get(b"topic", b"").decode("utf8", "replace")
            self.channels[number] = Channel(topic, _bag_fields(body).get(b"type", b"").decode("utf8", "replace"), "ros1")
        elif operation == b"\x02":
            yield Message(place, _unsigned(kind.get(b"conn"), 4), body)
        elif operation == b"\x05":
            method = kind.get(b"compression", b"").decode("ascii", "replace")
            chunk = self._decompress(method, body, _unsigned(kind.get(b"size"), 4), place)
            for offset, inner, data in self._inner(walk, chunk, place[1], place[0]):
                assert isinstance(inner, dict)
                if inner.get(b"op") in (b"\x02", b"\x07"):
                    yield from self._bag_record(inner, data, (place[0], offset), walk)

    def _mcap_record(self, kind: "RecordHead", body: memoryview, place: MessagePlace, walk: "Walk") -> Iterator[Message]:
        if kind == SCHEMA:
            number, text = struct.unpack_from("<H", body)[0], _mcap_text(body, 2)[0]
            self.schemas[number] = text.replace("/msg/", "/")
        elif kind == CHANNEL:
            number, schema = struct.unpack_from("<HH", body)
            topic, end = _mcap_text(body, 4)
            self.channels[number] = Channel(topic, self.schemas.get(schema, ""), _mcap_text(body, end)[0])
        elif kind == MESSAGE and len(body) >= 22:
            yield Message(place, struct.unpack_from("<H", body)[0], body[22:])
        elif kind == CHUNK:
            _, _, size, crc = struct.unpack_from("<QQQI", body)
            method, at = _mcap_text(body, 28)
            stored = struct.unpack_from("<Q", body, at)[0]
            chunk = self._decompress(method or "none", body[at + 8 : at + 8 + stored], size, place)
            if crc and zlib.crc32(chunk) != crc:
                raise InputError(f"the chunk at byte {place[0]} is damaged (its checksum is wrong)")
            for offset, inner, data in self._inner(walk, chunk, place[1], place[0]):
                if inner in (SCHEMA, CHANNEL, MESSAGE):
                    yield from self._mcap_record(inner, data, (place[0], offset), walk)

    def _decompress(self, method: str, data: memoryview, size: int, place: MessagePlace) -> bytes:
        try:
            if size > room(len(data)):
                raise InputError(f"{size >> 20} MB, expected at most {room(len(data)) >> 20} of {len(data) >> 10} kB")
            self.limit.spend(size)
            chunk = decompress(method, bytes(data), max(size, 1))
            if len(chunk) != size:
                raise InputError(f"{len(chunk)} bytes, expected {size}")
            return chunk
        except InputError as error:
            raise InputError(f"the chunk at byte {place[0]} can't be decoded: {error}") from error


RecordHead = int | dict[bytes, bytes]  # opcode of an MCAP record, or header fields of a bag's record
Fetch = Callable[[int, int], memoryview]  # (position, size) -> bytes
Walk = Callable[[Fetch, int, int], tuple[RecordHead, memoryview, int] | None]  # -> (head, body, end); None if the record doesn't fit
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK = 0x02, 0x03, 0x04, 0x05, 0x06


def bag_records(fetch: Fetch, position: int, limit: int) -> tuple[RecordHead, memoryview, int] | None:
    """Length and bytes of the header, length and bytes of the data."""
    if position + 4 > limit:
        return None
    head = position + 4 + _unsigned(fetch(position, 4), 4)
    if head + 4 > limit:
        return None
    end = head + 4 + _unsigned(fetch(head, 4), 4)
    if end > limit:
        return None
    fields = _bag_fields(fetch(position + 4, head - position - 4))
    wanted = fields.get(b"op") in (b"\x02", b"\x05", b"\x07")
    return fields, fetch(head + 4, end - head - 4 if wanted else 0), end


def mcap_records(fetch: Fetch, position: int, limit: int) -> tuple[RecordHead, memoryview, int] | None:
    """One byte opcode, eight bytes length, the body."""
    if position + 9 > limit:
        return None
    kind, size = struct.unpack("<BQ", fetch(position, 9))
    if position + 9 + size > limit:
        return None
    wanted = kind in (FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK)  # attachments may be of any size
    return kind, fetch(position + 9, size if wanted else 0), position + 9 + size


def _bag_fields(data: memoryview) -> dict[bytes, bytes]:
    """Header fields, each stored as length and name=value."""
    fields, at = {}, 0
    while at < len(data):
        size = _unsigned(data[at : at + 4], 4)
        name, equals, value = bytes(data[at + 4 : at + 4 + size]).partition(b"=")
        if not equals or at + 4 + size > len(data):
            raise InputError("a record's header is damaged")
        fields[name] = value
        at += 4 + size
    return fields


def _mcap_text(body: memoryview, at: int) -> tuple[str, int]:
    size = struct.unpack_from("<I", body, at)[0]
    if at + 4 + size > len(body):
        raise InputError("a text doesn't fit into its record")
    return bytes(body[at + 4 : at + 4 + size]).decode("utf8", "replace"), at + 4 + size


def _unsigned(data: "bytes | memoryview | None", size: int) -> int:
    if data is None or len(data) != size:
        raise InputError("a number in a record's header is missing or too short")
    return int.from_bytes(data, "little")
