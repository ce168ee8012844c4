"""SERIALISED ROS MESSAGES -> their fields, and packets of event_camera_msgs -> EVENTS, with what carries over from packet to packet."""

import numpy as np

from saccade.events.evt import FOREIGN, LAPS, ORPHANS, START, WORD, Decoder
from saccade.events.reader import EventColumns
from saccade.types import InputError

WORDS = {"evt3": "EVT3", "evt2": "EVT2"}  # encodings of packets that are words of the sensor
CLOCK_US = {"EVT3": 1 << 24, "EVT2": 1 << 34}  # after which the sensor's clock begins again at 0


class Cursor:
    """Reads the fields of a serialised message one after the other, with CDR's alignment if `aligned`; checks the message's end."""

    def __init__(self, data: memoryview, aligned: bool) -> None:
        self.aligned = aligned
        self._at = 0
        if aligned:
            if bytes(data[:2]) != b"\x00\x01":
                raise InputError(f"CDR of kind {bytes(data[:2]).hex()}; expected plain little-endian CDR (0001)")
            data = data[4:]
        self._data = data

    def bytes(self, size: int) -> memoryview:
        if self._at + size > len(self._data):
            raise InputError(f"{size} bytes at {self._at} don't fit into a message of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int, alignment: int = 0) -> int:
        if self.aligned:
            self._at += -self._at % (alignment or size)
        return int.from_bytes(self.bytes(size), "little")

    def text(self) -> str:
        return bytes(self.bytes(self.number(4))).rstrip(b"\x00").decode("utf8", "replace")

    def head(self) -> tuple[str, int, int]:
        """What every message with events begins with: frame, height, width."""
        if not self.aligned:
            self.number(4)  # sequence number, which ROS 2 dropped
        self.number(8, 4)  # time stamp
        return self.text(), self.number(4), self.number(4)


class PacketDecoder:
    """Packets of one camera, in order; `skip` where some are missing. Its state is that of the words' decoder."""

    def __init__(self, state: tuple[int, ...] = START) -> None:
        self._words = Decoder("EVT3", state)
        self._last_us: int | None = None  # the newest event before packets that are missing

    @property
    def state(self) -> tuple[int, ...]:
        return self._words.state

    def skip(self, last_us: int) -> None:
        """Packets are missing after LAST_US: row, column and time are unknown until words state them; laps of the clock are kept."""
        state = self.state
        kept = {LAPS: state[LAPS], ORPHANS: state[ORPHANS], FOREIGN: state[FOREIGN]}
        self._words = Decoder(self._words.encoding, tuple(kept.get(field, start) for field, start in enumerate(START)))
        self._last_us = last_us

    def decode(self, cursor: Cursor) -> EventColumns:
        """The packet after its `head` and sequence number. Words contain the sensor's clock, `mono` counts nanoseconds from a time base."""
        time_base_ns, encoding = cursor.number(8), cursor.text()
        order = ">" if cursor.number(1) else "<"
        data = cursor.bytes(cursor.number(4))
        if encoding in WORDS:
            kind = WORDS[encoding]
            size = WORD[kind].itemsize
            if len(data) % size:
                raise InputError(f"{len(data)} bytes of {kind}; expected words of {size}")
            return self._decode_words(kind, np.frombuffer(data, f"{order}u{size}").astype(WORD[kind], copy=False))
        if encoding == "mono":
            if len(data) % 8 or time_base_ns >= 1 << 62:
                raise InputError(f"{len(data)} bytes of mono events from {time_base_ns} ns; expected words of 8")
            words = np.frombuffer(data, f"{order}u8").astype(np.uint64)
            t = ((words & 0xFFFFFFFF).astype(np.int64) + time_base_ns) // 1000
            return t, (words >> 32).astype(np.uint16), ((words >> 48) & 0x7FFF).astype(np.uint16), words >> 63 != 0
        raise InputError(f"events are encoded as {encoding!r}; expected evt3, evt2 or mono (convert others with event_camera_tools)")

    def _decode_words(self, kind: str, words: np.ndarray) -> EventColumns:
        if self._words.encoding != kind:
            self._words = Decoder(kind, self.state)
        t, x, y, p = self._words.decode(words)
        if self._last_us is not None and len(t):
            if int(t[0]) < self._last_us - CLOCK_US[kind] // 2:  # the clock began again among the missing packets
                t = t + CLOCK_US[kind]
                state = list(self.state)
                state[LAPS] += 1
                self._words = Decoder(kind, tuple(state))
            self._last_us = None
        return t, x, y, p
