"""Prophesee's EVT2 (32-bit), EVT2.1 (64-bit) and EVT3 (16-bit) words -> events.

By hand: packages give wrong EVT3 times (expelliarmus, aestream), or can't export their state, without which no decoding starts mid-file.
A decoder's whole state is a few integers, so decoding can stop and start again at any word.
"""

import numpy as np

from saccade.events.reader import EventColumns, new_columns
from saccade.machine import compiled
from saccade.types import InputError

# Fields of the decoder's state. UNKNOWN until a word sets it; events before that have no time or place and are counted as ORPHANS.
HIGH, LAPS, LOW, ROW, BASE, POLARITY, ORPHANS, FOREIGN = range(8)
UNKNOWN = -1
START = (UNKNOWN, 0, 0, UNKNOWN, UNKNOWN, 0, 0, 0)

WORD: dict[str, np.dtype] = {"EVT2": np.dtype("<u4"), "EVT2.1": np.dtype("<u8"), "EVT3": np.dtype("<u2")}


class Decoder:
    """Words in, events out; time, row and vector base are kept from call to call."""

    def __init__(self, encoding: str, state: tuple[int, ...] = START, swapped: bool = False) -> None:
        """`swapped`: upper 32 bits of each EVT2.1 word first, as the IMX636 sends them."""
        if encoding not in WORD:
            raise InputError(f"encoding {encoding!r} can't be decoded; expected one of {', '.join(WORD)}")
        self.encoding = encoding
        self.swapped = swapped
        self._state = np.array(state, np.int64)
        self._scratch: EventColumns = new_columns(0)

    @property
    def state(self) -> tuple[int, ...]:
        """State from which a new decoder can continue at the next word."""
        return tuple(int(number) for number in self._state)

    def decode(self, words: np.ndarray) -> EventColumns:
        """All events in the words: t in microseconds, x, y, p."""
        if self.encoding == "EVT2":  # nearly every word is an event: decoded in place, without a copy
            columns = new_columns(len(words))
            n = _decode_evt2(words, self._state, *columns)
            return columns[0][:n], columns[1][:n], columns[2][:n], columns[3][:n]
        most = len(words) * (12 if self.encoding == "EVT3" else 32)
        if len(self._scratch[0]) < most:
            self._scratch = new_columns(most)
        if self.encoding == "EVT3":
            n = _decode_evt3(words, self._state, *self._scratch)
        else:
            n = _decode_evt21(words.view("<u4").reshape(-1, 2), 0 if self.swapped else 1, self._state, *self._scratch)
        t, x, y, p = (column[:n].copy() for column in self._scratch)
        return t, x, y, p


@compiled
def _lap(high, new, half):
    """1 if the clock has overflowed: it went back by more than half its range (a smaller step is disorder and passed on)."""
    return 1 if high - new > half else 0  # never true for UNKNOWN, which is below every time


# n is unsigned in all three loops, so that numba omits the check for negative indices: EVT3 became 1.5 times as fast.
_ONE = np.uint64(1)
# EVT3 words that change at most row and low time share one branch: their order is unpredictable, and each misprediction costs.
_PLAIN = sum(1 << kind for kind in (0x0, 0x2, 0x6, 0x7, 0x9, 0xA, 0xE, 0xF))  # 7, E, F: vendor data; 9: padding; A: triggers
_LAST_BASE = (1 << 16) - 12  # of an EVT3 vector: events of later ones would wrap in uint16 and come back as valid pixels
_FIRST_LANE = np.array([(bits & -bits).bit_length() - 1 for bits in range(1 << 12)], np.int64)


@compiled
def _decode_evt3(words, state, t, x, y, p):
    high, laps, row, base = state[HIGH], state[LAPS], state[ROW], state[BASE]
    polarity, orphans, foreign = state[POLARITY], state[ORPHANS], state[FOREIGN]
    start = (laps << 12) + high << 12 if high != UNKNOWN else UNKNOWN
    now = start + state[LOW]
    n = np.uint64(0)
    for i in range(len(words)):
        word = np.int64(words[i])
        kind = word >> 12
        if (_PLAIN >> kind) & 1 | (word == 0x8000 + high):
            row = word & 0x7FF if kind == 0x0 else row
            now = start + (word & 0xFFF) if kind == 0x6 else now
            if kind == 0x2:  # one event
                if start == UNKNOWN or row == UNKNOWN:
                    orphans += 1
                    continue
                t[n], x[n], y[n], p[n] = now, word & 0x7FF, row, (word >> 11) & 1
                n += _ONE
        elif kind == 0x4 or kind == 0x5:  # 12 or 8 neighbours in the row, one bit each
            fired = word & (0xFFF if kind == 0x4 else 0xFF)
            known = start != UNKNOWN and row != UNKNOWN and base != UNKNOWN
            while fired:
                if known:
                    t[n], x[n], y[n], p[n] = now, base + _FIRST_LANE[fired], row, polarity
                    n += _ONE
                orphans += not known
                fired &= fired - 1
            if base != UNKNOWN:
                base += 12 if kind == 0x4 else 8
                base = base if base <= _LAST_BASE else UNKNOWN
        elif kind == 0x3:
            base, polarity = word & 0x7FF, (word >> 11) & 1
        elif kind == 0x8:
            laps += _lap(high, word & 0xFFF, 1 << 11)
            high = word & 0xFFF
            start = (laps << 12) + high << 12
            now = start  # the old low part belongs to the old high part
        else:
            foreign += 1
    state[HIGH], state[LAPS], state[LOW], state[ROW], state[BASE] = high, laps, now - start, row, base
    state[POLARITY], state[ORPHANS], state[FOREIGN] = polarity, orphans, foreign
    return n


@compiled
def _decode_evt2(words, state, t, x, y, p):
    high, laps, orphans, foreign = state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN]
    start = (laps << 28) + high << 6
    n = np.uint64(0)
    for i in range(len(words)):
        word = np.int64(words[i])
        kind = word >> 28
        if kind <= 0x1:
            if high == UNKNOWN:
                orphans += 1
                continue
            t[n], x[n], y[n], p[n] = start + ((word >> 22) & 0x3F), (word >> 11) & 0x7FF, word & 0x7FF, kind
            n += _ONE
        elif kind == 0x8:
            laps += _lap(high, word & 0xFFFFFFF, 1 << 27)
            high = word & 0xFFFFFFF
            start = (laps << 28) + high << 6
        else:
            foreign += kind != 0xA and kind < 0xE  # triggers and vendor data
    state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN] = high, laps, orphans, foreign
    return n


@compiled
def _decode_evt21(halves, first, state, t, x, y, p):
    """`halves` (words, 2): 32 bits each; half `first` holds kind, time and position, the other one the valid bits."""
    high, laps, orphans, foreign = state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN]
    start = (laps << 28) + high << 6
    n = np.uint64(0)
    for i in range(len(halves)):
        word = np.int64(halves[i, first])
        kind = word >> 28
        if kind <= 0x1:  # up to 32 neighbours in the row, one bit each
            fired = np.int64(halves[i, 1 - first])
            column = (word >> 11) & 0x7FF
            while fired:
                if fired & 1 and high != UNKNOWN:
                    t[n], x[n], y[n], p[n] = start + ((word >> 22) & 0x3F), column, word & 0x7FF, kind
                    n += _ONE
                orphans += fired & (high == UNKNOWN)
                fired >>= 1
                column += 1
        elif kind == 0x8:
            laps += _lap(high, word & 0xFFFFFFF, 1 << 27)
            high = word & 0xFFFFFFF
            start = (laps << 28) + high << 6
        else:
            foreign += kind != 0xA and kind < 0xE
    state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN] = high, laps, orphans, foreign
    return n
