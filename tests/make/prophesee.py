"""Encoders of Prophesee's formats, for tests: plain Python, written from the formats' description, nothing shared with the decoders."""

import struct
from pathlib import Path

from saccade.types import Events


def header(encoding: str, events: Events) -> bytes:
    digits = {"EVT2": "2.0", "EVT2.1": "2.1", "EVT3": "3.0"}[encoding]
    return f"% evt {digits}\n% geometry {events.width}x{events.height}\n% end\n".encode()


def write_dat(path: Path, events: Events, kind: int = 12, lines: str | None = None) -> Path:
    lines = lines if lines is not None else f"% Data file\n% Version 2\n% Height {events.height}\n% Width {events.width}\n"
    data = lines.encode() + bytes([kind, 8])
    for t, x, y, p in zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), events.p.tolist(), strict=True):
        data += struct.pack("<II", t & 0xFFFFFFFF, x | y << 14 | p << 28)
    path.write_bytes(data)
    return path


def evt2(events: Events) -> bytes:
    words, high = [], None
    for t, x, y, p in zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), events.p.tolist(), strict=True):
        if t >> 6 != high:
            high = t >> 6
            words.append(0x8 << 28 | high & 0xFFFFFFF)
        words.append(p << 28 | (t & 0x3F) << 22 | x << 11 | y)
    return struct.pack(f"<{len(words)}I", *words)


def evt21(events: Events, legacy: bool = False) -> bytes:
    """Each event as a vector of its own 32-pixel group; events of one time, row, group and polarity share a word."""
    words, high, group = [], None, None
    for t, x, y, p in zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), events.p.tolist(), strict=True):
        if t >> 6 != high:
            high, group = t >> 6, None
            words.append((0x8 << 28 | high & 0xFFFFFFF) << 32)
        upper = p << 28 | (t & 0x3F) << 22 | (x & ~31) << 11 | y
        if group == upper and (1 << (x & 31)) > words[-1] & 0xFFFFFFFF:  # keeps the order of events
            words[-1] |= 1 << (x & 31)
        else:
            words.append(upper << 32 | 1 << (x & 31))
        group = upper
    if legacy:
        words = [(word & 0xFFFFFFFF) << 32 | word >> 32 for word in words]
    return struct.pack(f"<{len(words)}Q", *words)


def evt3(events: Events, vectors: bool = True) -> bytes:
    """With vectors, neighbours of one time, row and polarity go into 12-pixel words, as sensors do in bursts."""
    words: list[int] = []
    high = low = row = None
    rows = list(zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), events.p.tolist(), strict=True))
    i = 0
    while i < len(rows):
        t, x, y, p = rows[i]
        if t >> 12 != high:
            high, low = t >> 12, None
            words.append(0x8000 | high & 0xFFF)
        if t & 0xFFF != low:
            low = t & 0xFFF
            words.append(0x6000 | low)
        if y != row:
            row = y
            words.append(y)
        run = 1
        while i + run < len(rows) and rows[i + run] == (t, rows[i + run][1], y, p) and rows[i + run - 1][1] < rows[i + run][1] < x + 12:
            run += 1
        if vectors and run > 1:
            words.append(0x3000 | p << 11 | x)
            words.append(0x4000 | sum(1 << rows[i + k][1] - x for k in range(run)))
        else:
            run = 1
            words.append(0x2000 | p << 11 | x)
        i += run
    return struct.pack(f"<{len(words)}H", *words)


ENCODERS = {"EVT2": evt2, "EVT2.1": evt21, "EVT3": evt3}


def write_raw(path: Path, events: Events, encoding: str) -> Path:
    path.write_bytes(header(encoding, events) + ENCODERS[encoding](events))
    return path
