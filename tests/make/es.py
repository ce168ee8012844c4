"""Event Stream files (.es), written by hand from the public description of the format: version 2, DVS events (type 1)."""

from pathlib import Path

from saccade.types import Events

PAUSE_US, PAUSE = 127, b"\xff"  # time is 7 bits, 0 to 126; a longer pause is bytes of 127 us each


def write(path: Path, events: Events, *, version: bytes = b"\x02\x00\x00", kind: int = 1) -> Path:
    """Time since the previous event and polarity in one byte, then x and y, which counts from the bottom."""
    data = bytearray(b"Event Stream" + version + bytes((kind,)) + events.width.to_bytes(2, "little") + events.height.to_bytes(2, "little"))
    now_us = 0
    for t, x, y, p in zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), events.p.tolist(), strict=True):
        pauses, rest_us = divmod(t - now_us, PAUSE_US)
        data += PAUSE * pauses + bytes((rest_us << 1 | p,)) + x.to_bytes(2, "little") + (events.height - 1 - y).to_bytes(2, "little")
        now_us = t
    path.write_bytes(data)
    return path
