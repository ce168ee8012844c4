"""Prophesee's raw words -> events: EVT2 (32 bits), EVT2.1 (64 bits), EVT3 (16 bits), with running time carried from word to word.

A decoder's whole state is a few integers, so decoding can stop and start again at any word.
"""

import numpy as np

from saccade.compiled import compiled
from saccade.types import InputError

Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # t, x, y, p

# The state of a decoder. UNKNOWN marks what no word has told yet: events before that can't be placed and are counted as orphans.
HIGH, LAPS, LOW, ROW, BASE, POLARITY, ORPHANS, FOREIGN = range(8)
UNKNOWN = -1
START = (UNKNOWN, 0, 0, UNKNOWN, UNKNOWN, 0, 0, 0)

WORD = {"EVT2": np.dtype("<u4"), "EVT2.1": np.dtype("<u8"), "EVT3": np.dtype("<u2")}
MOST_EVENTS_A_WORD = {"EVT2": 1, "EVT2.1": 32, "EVT3": 12}


class Decoder:
    """Words in, events out; time, row and vector base run on from call to call."""

    def __init__(self, encoding: str, state: tuple[int, ...] = START, swapped: bool = False) -> None:
        """`swapped`: EVT2.1 as the IMX636 sends it, the upper 32 bits first."""
        if encoding not in WORD:
            raise InputError(f"encoding {encoding!r} can't be decoded; expected one of {', '.join(WORD)}")
        self.encoding = encoding
        self.swapped = swapped
        self._state = np.array(state, np.int64)
        self._scratch: Columns = _columns(0)

    @property
    def state(self) -> tuple[int, ...]:
        """With which a new decoder goes on at the next word."""
        return tuple(int(number) for number in self._state)

    def decode(self, words: np.ndarray) -> Columns:
        """Times in microseconds (without laps lost), columns, rows and polarities of all events in the words."""
        most = len(words) * MOST_EVENTS_A_WORD[self.encoding]
        if len(self._scratch[0]) < most:
            self._scratch = _columns(most)
        if self.encoding == "EVT3":
            n = _decode_evt3(words, self._state, *self._scratch)
        elif self.encoding == "EVT2":
            n = _decode_evt2(words, self._state, *self._scratch)
        else:
            n = _decode_evt21(words, self.swapped, self._state, *self._scratch)
        t, x, y, p = (column[:n].copy() for column in self._scratch)
        return t, x, y, p


def _columns(n: int) -> Columns:
    return np.empty(n, np.int64), np.empty(n, np.uint16), np.empty(n, np.uint16), np.empty(n, np.bool_)


@compiled
def _lap(high, new, half):
    """1 if the clock has started again: it went back by more than half its range. Less is disorder, passed on as it is."""
    return 1 if high - new > half else 0


@compiled
def _decode_evt3(words, state, t, x, y, p):
    high, laps, low, row = state[HIGH], state[LAPS], state[LOW], state[ROW]
    base, polarity, orphans, foreign = state[BASE], state[POLARITY], state[ORPHANS], state[FOREIGN]
    now = ((laps << 12) + high << 12) + low
    placed = high != UNKNOWN and row != UNKNOWN
    n = 0
    for i in range(len(words)):
        word = np.int64(words[i])
        kind = word >> 12
        if kind == 0x2:  # one event
            t[n], x[n], y[n], p[n] = now, word & 0x7FF, row, (word >> 11) & 1
            n += placed
            orphans += not placed
        elif kind == 0x4 or kind == 0x5:  # 12 or 8 neighbours in the row, one bit each
            width = 12 if kind == 0x4 else 8
            known = placed and base != UNKNOWN
            for lane in range(width):
                fired = (word >> lane) & 1
                t[n], x[n], y[n], p[n] = now, base + lane, row, polarity
                n += fired & known
                orphans += fired & (not known)
            if base != UNKNOWN:
                base += width
        elif kind == 0x0:
            row = word & 0x7FF
            placed = high != UNKNOWN
        elif kind == 0x6:
            low = word & 0xFFF
            now = ((laps << 12) + high << 12) + low
        elif kind == 0x3:
            base, polarity = word & 0x7FF, (word >> 11) & 1
        elif kind == 0x8:
            new = word & 0xFFF
            if new != high:
                if high != UNKNOWN:
                    laps += _lap(high, new, 1 << 11)
                high, low = new, 0  # the old low part belongs to the old high part
                now = (laps << 12) + high << 12
                placed = row != UNKNOWN
        elif kind == 0x1 or kind >= 0xB and kind <= 0xD:
            foreign += 1  # 0x7, 0xE, 0xF: vendors' data; 0x9: padding; 0xA: triggers. None of them places an event
    state[HIGH], state[LAPS], state[LOW], state[ROW] = high, laps, low, row
    state[BASE], state[POLARITY], state[ORPHANS], state[FOREIGN] = base, polarity, orphans, foreign
    return n


@compiled
def _decode_evt2(words, state, t, x, y, p):
    high, laps, orphans, foreign = state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN]
    now = (laps << 28) + high << 6
    n = 0
    for i in range(len(words)):
        word = np.int64(words[i])
        kind = word >> 28
        if kind <= 0x1:
            t[n], x[n], y[n], p[n] = now + ((word >> 22) & 0x3F), (word >> 11) & 0x7FF, word & 0x7FF, kind
            n += high != UNKNOWN
            orphans += high == UNKNOWN
        elif kind == 0x8:
            new = word & 0xFFFFFFF
            if high != UNKNOWN:
                laps += _lap(high, new, 1 << 27)
            high = new
            now = (laps << 28) + high << 6
        elif kind != 0xA and kind < 0xE:
            foreign += 1
    state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN] = high, laps, orphans, foreign
    return n


@compiled
def _decode_evt21(words, swapped, state, t, x, y, p):
    high, laps, orphans, foreign = state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN]
    now = (laps << 28) + high << 6
    n = 0
    for i in range(len(words)):
        word = words[i]
        upper = np.int64((word if swapped else word >> np.uint64(32)) & np.uint64(0xFFFFFFFF))
        kind = upper >> 28
        if kind <= 0x1:  # up to 32 neighbours in the row, one bit each
            valid = np.int64((word >> np.uint64(32) if swapped else word) & np.uint64(0xFFFFFFFF))
            time, column, row = now + ((upper >> 22) & 0x3F), (upper >> 11) & 0x7FF, upper & 0x7FF
            while valid:
                if valid & 1:
                    t[n], x[n], y[n], p[n] = time, column, row, kind
                    n += high != UNKNOWN
                    orphans += high == UNKNOWN
                valid >>= 1
                column += 1
        elif kind == 0x8:
            new = upper & 0xFFFFFFF
            if high != UNKNOWN:
                laps += _lap(high, new, 1 << 27)
            high = new
            now = (laps << 28) + high << 6
        elif kind != 0xA and kind < 0xE:
            foreign += 1
    state[HIGH], state[LAPS], state[ORPHANS], state[FOREIGN] = high, laps, orphans, foreign
    return n
