"""ROS 1 bags and ROS 2 MCAP files: dvs_msgs (and prophesee_event_msgs) arrays, event_camera_msgs packets."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events.bags import BAG_MAGIC, MCAP_MAGIC, Bag, Message, MessagePlace
from saccade.events.evt import FOREIGN, ORPHANS, START
from saccade.events.reader import EventColumns, IndexedReader, new_columns
from saccade.events.ros_packets import Cursor, PacketDecoder
from saccade.types import Events, InputError

ARRAYS = ("dvs_msgs/EventArray", "prophesee_event_msgs/EventArray")
PACKETS = ("event_camera_msgs/EventPacket",)
ENOUGH = 1 << 16  # events: messages hold a few milliseconds each, so they are joined up to this many

# An event of an array. In ROS 1, records follow each other without gaps. CDR aligns numbers to their size, so that x and y (except the
# first) lie in the gap after the previous event's polarity: a record here is an event's time and polarity and the next one's x and y.
PACKED = np.dtype([("x", "<u2"), ("y", "<u2"), ("seconds", "<u4"), ("nanoseconds", "<u4"), ("p", "u1")])
ALIGNED = np.dtype(
    {
        "names": ["seconds", "nanoseconds", "p", "x", "y"],
        "formats": ["<i4", "<u4", "u1", "<u2", "<u2"],
        "offsets": [0, 4, 8, 10, 12],
        "itemsize": 16,
    }
)


class RosReader(IndexedReader):
    """Marks are (position of a chunk, offset of a message in it, *state of the words' decoder)."""

    format: ClassVar[str] = "ROS"
    mark_length: ClassVar[int] = 2 + len(START)

    def __init__(self, path: Path, *, topic: str | None = None, index_path: Path | None = None) -> None:
        file = path.open("rb")
        try:
            super().__init__(path, 0, 0, index_path=index_path, options=topic or "")
            magic = file.read(len(BAG_MAGIC))
            if not magic.startswith((BAG_MAGIC, MCAP_MAGIC)):
                raise InputError(f"{path}: begins with {magic!r}; expected a ROS 1 bag (version 2.0) or an MCAP file")
            self._ids: set[int] = set()  # of the channels of the chosen topic
            self._bag = Bag(file, path.stat().st_size, is_mcap=magic.startswith(MCAP_MAGIC))
            self.format = "ROS 2 MCAP" if self._bag.is_mcap else "ROS 1 bag"  # type: ignore[misc]  # one class, two containers
            self._find_channels()
            self.topic = self._choose(topic)
            self._ids = {number for number, channel in self._bag.channels.items() if channel.topic == self.topic}
            self._find_size()
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        self._bag.file.close()

    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        decoder = PacketDecoder(mark[2:] if mark else START)
        parts: list[EventColumns] = []
        begin: tuple[int, ...] = ()
        for message in self._messages((mark[0], mark[1]) if mark else None):
            if not parts:
                begin = (*message.place, *decoder.state)
            columns = self._decode(message, decoder)
            if len(columns[0]):
                parts.append(columns)
            if sum(len(part[0]) for part in parts) >= ENOUGH:
                yield begin, self._join(parts)
                parts = []
        if parts:
            yield begin, self._join(parts)
        if decoder.state[ORPHANS]:
            self.note(f"{decoder.state[ORPHANS]} events without a known time, row or column are left out")
        if decoder.state[FOREIGN]:
            self.note(f"{decoder.state[FOREIGN]} words of a kind that the encoding doesn't define are left out; the file may be damaged")

    def _join(self, parts: list[EventColumns]) -> Events:
        t, x, y, p = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Events(t, x, y, p, self.width, self.height)

    def _messages(self, place: MessagePlace | None = None) -> Iterator[Message]:
        """Messages of the chosen topic. A recording that is cut off gets a note, damage before that raises InputError."""
        try:
            for message in self._bag.messages(place):
                if message.channel in self._ids:
                    yield message
                    self.fraction = message.place[0] / self._bag.size
        except (InputError, struct.error, RecursionError) as error:
            raise self._located(error) from error
        if self._bag.problem:
            self.note(self._bag.problem)
        self.fraction = 1.0

    def _located(self, error: Exception) -> InputError:
        return InputError(str(error) if str(error).startswith(str(self.path)) else f"{self.path}: {error}")

    def _find_channels(self) -> None:
        try:
            whole = self._bag.read_index()
        except (InputError, struct.error):
            whole = False
        if not whole:
            self.note("the index at the end is missing or damaged: the recording was cut or never finished; reading what is there")
        if whole and any(channel.kind in ARRAYS + PACKETS for channel in self._bag.channels.values()):
            return
        self._bag.problem = ""
        for _ in self._messages():  # registers the channels
            pass

    def _choose(self, topic: str | None) -> str:
        channels = self._bag.channels.values()
        events = sorted({channel.topic for channel in channels if channel.kind in ARRAYS + PACKETS})
        present = ", ".join(sorted({f"{channel.topic} ({channel.kind})" for channel in channels})) or "none"
        if topic is not None and topic not in events:
            raise InputError(f"{self.path}: no events on topic {topic!r}; topics present: {present}")
        if not events:
            raise InputError(f"{self.path}: no topic with events ({', '.join(ARRAYS + PACKETS)}); topics present: {present}")
        if topic is None and len(events) > 1:
            self.note(f"events on {', '.join(events)}; reading {events[0]} (state topic= for another)")
        return topic or events[0]

    def _find_size(self) -> None:
        first = next(self._messages(), None)
        if first is None:
            raise InputError(f"{self.path}: topic {self.topic} has no whole message; nothing to read")
        self._decode(first, PacketDecoder(), set_size=True)
        if not (self.width and self.height):
            self.width, self.height = self.index.extent
            self.note(f"the messages don't state the sensor; {self.width} x {self.height} is the extent of the events")

    def _decode(self, message: Message, decoder: PacketDecoder, set_size: bool = False) -> EventColumns:
        channel = self._bag.channels[message.channel]
        try:
            if channel.encoding not in ("ros1", "cdr"):
                raise InputError(f"message encoding {channel.encoding!r}; expected ros1 or cdr")
            cursor = Cursor(message.data, aligned=channel.encoding == "cdr")
            _, height, width = cursor.head()
            if set_size:
                self.width, self.height = (width, height) if max(width, height) <= 65_536 else (0, 0)
            if channel.kind in ARRAYS:
                return _array(cursor)
            cursor.number(8)  # sequence number
            return decoder.decode(cursor)
        except InputError as error:
            raise InputError(
                f"{self.path}: the message at byte {message.place[0]} + {message.place[1]} can't be decoded: {error}"
            ) from error


def _array(cursor: Cursor) -> EventColumns:
    count = cursor.number(4)
    if not count:
        return new_columns(0)
    if not cursor.aligned:
        records = np.frombuffer(cursor.bytes(count * PACKED.itemsize), PACKED)
        x, y = np.ascontiguousarray(records["x"]), np.ascontiguousarray(records["y"])
    else:
        data = cursor.bytes(16 * count - 3)
        first = np.frombuffer(data[:4], "<u2")
        records = np.frombuffer(bytes(data[4:]) + bytes(7), ALIGNED)  # the last event has no successor
        x = np.concatenate([first[:1], records["x"][:-1]])
        y = np.concatenate([first[1:], records["y"][:-1]])
    t = records["seconds"].astype(np.int64) * 1_000_000 + records["nanoseconds"] // 1000
    return t, x, y, records["p"] != 0
