"""Prophesee's event compression for HDF5 (filter 0x8ECF). By hand: no Python package has the codec.

A chunk is a 32-bit head (events << 2 | y, x and p packed << 1 | x and p packed), the first time as 64 bits, then three or four runs:

| run | unit | meaning |
|---|---|---|
| times | byte | high nibble = step, low = repeats (15: 16-bit repeats follow); high nibble 15 = 4 bits of a long step, low ones first |
| y | 16 bits | y << 5, repeats (31: 16-bit repeats follow) |
| x | 16 bits | x << 5, mask of which of the next five columns also fired |
| p | byte | p << 7, repeats (127: 16-bit repeats follow) |
| x, p packed | 3 x 16 bits | four times 12 bits: x << 1, p |
| y, x, p packed | 3 x 32 bits | four times 24 bits: y << 12, x << 1, p |
"""

import numpy as np

from saccade.events.reader import EventColumns, new_columns
from saccade.machine import compiled
from saccade.types import InputError

FILTER = 0x8ECF
LARGEST = 65_535  # events a chunk, by the format


def decode_chunk(data: bytes) -> EventColumns:
    """t, x, y, p of one chunk; InputError if it is damaged."""
    if len(data) < 4:
        raise InputError(f"ECF chunk of {len(data)} bytes; expected at least its head of 4")
    head = int.from_bytes(data[:4], "little")
    count = head >> 2
    if count > LARGEST:
        raise InputError(f"ECF chunk states {count} events; at most {LARGEST} are possible")
    t, x, y, p = new_columns(count)
    if count:
        source = np.frombuffer(data, np.uint8)
        if len(source) < 12 or not _decode(source, bool(head & 2), bool(head & 1), t, x, y, p):
            raise InputError(f"ECF chunk of {len(data)} bytes ends before its {count} events do")
    return t, x, y, p


@compiled
def _decode(source, all_packed, x_packed, t, x, y, p):
    """True if all events were found. Every read is checked against the end, because compiled code has no bounds checks."""
    at = _times(source, 4, t)
    if all_packed:
        return at > 0 and _packed_yxp(source, at, x, y, p)
    at = _runs(source, at, 2, 5, y) if at > 0 else 0
    if x_packed:
        return at > 0 and _packed_xp(source, at, x, p)
    at = _masked_x(source, at, x) if at > 0 else 0
    return at > 0 and _runs(source, at, 1, 7, p) > 0


@compiled
def _word(source, at, width):
    value = np.uint64(0)
    for k in range(width):
        value |= np.uint64(source[at + k]) << np.uint64(8 * k)
    return np.int64(value)


@compiled
def _times(source, at, t):
    """Position after the times, 0 if the data ends too early."""
    size, count = len(source), len(t)
    now = _word(source, at, 8)
    at += 8
    done = shift = step = 0
    while done < count:
        if at >= size:
            return 0
        high, low = _word(source, at, 1) >> 4, _word(source, at, 1) & 15
        at += 1
        if high == 15:
            if shift < 64:
                step |= low << shift
            shift += 4
            continue
        now += step + high
        shift = step = 0
        if low == 15:
            if at + 2 > size:
                return 0
            low = _word(source, at, 2)
            at += 2
        end = min(done + low, count)
        t[done:end] = now
        done = end
    return at


@compiled
def _runs(source, at, width, bits, out):
    """Values with a repeat count in their lowest bits; all ones = the count is in the next 16 bits. Returns as `_times`."""
    size, count = len(source), len(out)
    full = (1 << bits) - 1
    done = 0
    while done < count:
        if at + width > size:
            return 0
        word = _word(source, at, width)
        at += width
        repeats = word & full
        if repeats == full:
            if at + 2 > size:
                return 0
            repeats = _word(source, at, 2)
            at += 2
        end = min(done + repeats, count)
        out[done:end] = word >> bits
        done = end
    return at


@compiled
def _masked_x(source, at, x):
    size, count = len(source), len(x)
    done = 0
    while done < count:
        if at + 2 > size:
            return 0
        word = _word(source, at, 2)
        at += 2
        x[done] = word >> 5
        done += 1
        for k in range(5):
            if word >> (4 - k) & 1 and done < count:
                x[done] = (word >> 5) + k + 1
                done += 1
    return at


@compiled
def _packed_xp(source, at, x, p):
    count = len(x)
    if at + (count + 3) // 4 * 6 > len(source):
        return False
    for i in range(0, count, 4):
        a, b, c = _word(source, at, 2), _word(source, at + 2, 2), _word(source, at + 4, 2)
        at += 6
        four = (a >> 4, (a & 15) | (b >> 8) << 4, (b & 255) | (c >> 12) << 8, c & 4095)
        for k in range(min(4, count - i)):
            x[i + k] = four[k] >> 1
            p[i + k] = four[k] & 1 == 1
    return True


@compiled
def _packed_yxp(source, at, x, y, p):
    count = len(x)
    if at + (count + 3) // 4 * 12 > len(source):
        return False
    for i in range(0, count, 4):
        a, b, c = _word(source, at, 4), _word(source, at + 4, 4), _word(source, at + 8, 4)
        at += 12
        four = (a >> 8, (a & 0xFF) | (b >> 16) << 8, (b & 0xFFFF) | (c >> 24) << 16, c & 0xFFFFFF)
        for k in range(min(4, count - i)):
            y[i + k] = four[k] >> 12 & 2047
            x[i + k] = four[k] >> 1 & 2047
            p[i + k] = four[k] & 1 == 1
    return True
