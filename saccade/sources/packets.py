"""EVENTS <-> PACKETS: the byte format that standard input, TCP and UDP sources read.

A packet is a header of 36 bytes and COUNT events of 8 bytes each, all little-endian:

| offset | type | what |
|--:|---|---|
| 0 | 4 bytes | magic, b"SEV1": the digit is the version |
| 4 | uint32 | CRC-32 (zlib) of everything from offset 8 to the packet's end |
| 8 | uint32 | sequence number, one more than the packet before, 0 after 4,294,967,295 |
| 12 | uint32 | count of events, at most 65,536 (a UDP datagram holds 8,183; 179 fit into one Ethernet frame) |
| 16 | uint16 | width of the sensor, 1 to 32,767 |
| 18 | uint16 | height of the sensor, 1 to 32,767 |
| 20 | uint64 | zero, for later versions |
| 28 | int64 | base, in microseconds |
| 36 | ... | events: uint32 time since base in microseconds, uint16 x, uint16 y + 32,768 if brighter |

A packet's size is limited, so a reader needs memory for one packet only, whatever is sent to it.
"""

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from saccade.events.mend import MOST_PIXELS
from saccade.types import Events, InputError

MAGIC = b"SEV1"
HEADER = struct.Struct("<4sIIIHHQq")
EVENT = np.dtype([("t", "<u4"), ("x", "<u2"), ("y", "<u2")])
MOST_EVENTS = 1 << 16
MOST_BYTES = HEADER.size + MOST_EVENTS * EVENT.itemsize
LONGEST_SIDE = (1 << 15) - 1
BRIGHTER = 1 << 15
EARLIEST_US, LATEST_US = -(1 << 60), 1 << 60  # base + time of an event can't overflow int64


def encode(events: Events, sequence: int = 0) -> bytes:
    """One packet; `packets` splits what is too long for one."""
    base_us = int(events.t.min()) if len(events) else 0
    _check_size(events.width, events.height)
    if len(events) > MOST_EVENTS or (len(events) and int(events.t.max()) - base_us >= 1 << 32):
        raise InputError(f"packet: {len(events)} events over {int(np.ptp(events.t))} us are too many for one; use packets(events)")
    if len(events) and max(int(events.x.max()), int(events.y.max())) > LONGEST_SIDE:
        raise InputError(f"packet: coordinates beyond {LONGEST_SIDE} don't fit; drop the events outside the sensor")
    rows = np.empty(len(events), EVENT)
    rows["t"], rows["x"], rows["y"] = events.t - base_us, events.x, events.y + events.p.astype(np.uint16) * np.uint16(BRIGHTER)
    body = HEADER.pack(MAGIC, 0, sequence, len(events), events.width, events.height, 0, base_us)[8:] + rows.tobytes()
    return MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def packets(events: Events, most: int = 179, sequence: int = 0) -> Iterator[bytes]:
    """All events in packets of at most MOST, numbered from SEQUENCE on."""
    for number, first in enumerate(range(0, len(events), most)):
        yield encode(events[first : first + most], (sequence + number) % (1 << 32))


def length_of(header: bytes) -> int:
    """Bytes of the packet that begins with this header; InputError if the header isn't valid."""
    magic, _, _, count, width, height, _, _ = HEADER.unpack(header)
    if magic != MAGIC:
        raise InputError(f"begins with {magic!r}, expected {MAGIC!r}; is the sender of another version, or the stream out of step?")
    if count > MOST_EVENTS:
        raise InputError(f"states {count} events, more than {MOST_EVENTS}")
    _check_size(width, height)
    return int(HEADER.size + count * EVENT.itemsize)


def decode(packet: bytes) -> tuple[int, Events]:
    """Sequence number and events of one whole packet; InputError if it is damaged."""
    if len(packet) < HEADER.size:
        raise InputError(f"has {len(packet)} bytes, less than a header's {HEADER.size}")
    if length_of(packet[: HEADER.size]) != len(packet):
        raise InputError(f"has {len(packet)} bytes, its header says {length_of(packet[: HEADER.size])}")
    _, checksum, sequence, _, width, height, _, base_us = HEADER.unpack_from(packet)
    if zlib.crc32(memoryview(packet)[8:]) != checksum:
        raise InputError("is damaged: its checksum is wrong")
    if not EARLIEST_US <= base_us <= LATEST_US:
        raise InputError(f"begins at {base_us} us, expected at most 2^60 from zero")
    rows = np.frombuffer(packet, EVENT, offset=HEADER.size)
    y = rows["y"]
    return sequence, Events(
        rows["t"] + np.int64(base_us), rows["x"].astype(np.uint16), y & np.uint16(LONGEST_SIDE), y >= BRIGHTER, width, height
    )


def _check_size(width: int, height: int) -> None:
    if not (0 < width <= LONGEST_SIDE and 0 < height <= LONGEST_SIDE and width * height <= MOST_PIXELS):
        raise InputError(f"states a sensor of {width} x {height} pixels; expected sides from 1 to {LONGEST_SIDE}, {MOST_PIXELS:,} in all")


class SequenceNumbers:
    """Counts lost and repeated packets; late ones are accepted, and a restarted sender after RESTARTED packets in a row."""

    REMEMBERED = 1024
    RESTARTED = 8

    def __init__(self) -> None:
        self.lost = self.repeated = 0
        self._next: int | None = None
        self._missing: dict[int, None] = {}  # the newest missing numbers, which may still arrive
        self._again: tuple[int, int] = (-1, 0)  # next number if the sender has restarted, and how many in a row have matched

    def restart(self) -> None:
        """Another sender follows: its numbers may begin anywhere. The counts stay."""
        self._next, self._again = None, (-1, 0)
        self._missing.clear()

    def is_new(self, number: int) -> bool:
        """False for a packet that came before, or too late to tell."""
        ahead = 0 if self._next is None else (number - self._next) % (1 << 32)
        if ahead < 1 << 31:
            self.lost += ahead
            for missed in range(max(ahead - self.REMEMBERED, 0), ahead):
                self._missing[((self._next or 0) + missed) % (1 << 32)] = None
            while len(self._missing) > self.REMEMBERED:
                del self._missing[next(iter(self._missing))]
        elif number in self._missing:
            del self._missing[number]
            self.lost -= 1
            return True
        else:
            expected, fitting = self._again
            self._again = (number + 1) % (1 << 32), fitting + 1 if number == expected else 1
            if self._again[1] < self.RESTARTED:
                self.repeated += 1
                return False
            self._missing.clear()
        self._next, self._again = (number + 1) % (1 << 32), (-1, 0)
        return True
