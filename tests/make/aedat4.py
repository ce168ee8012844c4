"""AEDAT4 recordings: several streams, every compression, with or without the table of packets at the end."""

import struct
from pathlib import Path

import lz4.frame
import numpy as np
import zstandard

from saccade.types import Events

EVENT = np.dtype({"names": ["t", "x", "y", "p"], "formats": ["<i8", "<i2", "<i2", "?"], "offsets": [0, 8, 10, 12], "itemsize": 16})
COMPRESS = {
    0: bytes,
    1: lz4.frame.compress,
    2: lambda data: lz4.frame.compress(data, compression_level=9),
    3: zstandard.ZstdCompressor(write_content_size=False).compress,
    4: zstandard.ZstdCompressor(level=19).compress,
}
ATTRIBUTE = '<attr key="{}" type="string">{}</attr>'


def write(
    path: Path,
    events: Events,
    *,
    compression: int = 1,
    packet: int = 100,
    streams: tuple[str, ...] = ("FRME", "EVTS", "IMUS"),
    table: bool = True,
    size: bool = True,
) -> Path:
    """Packets of the other streams lie between those of the events. Without a table, the file is as a crashed recorder leaves it."""
    data = b""
    for first in range(0, len(events), packet):
        for number, kind in enumerate(streams):
            body = event_packet(events[first : first + packet]) if kind == "EVTS" else b"not for us"
            body = COMPRESS[compression](body)
            data += struct.pack("<ii", number, len(body)) + body
    for position in (-1, 0):  # the header's length doesn't depend on the position of the table
        head = header(events, compression, position, streams, size)
        position = len(head) + len(data) if table else -1
        head = header(events, compression, position, streams, size)
    path.write_bytes(head + data + (COMPRESS[compression](b"the table, which we don't read") if table else b""))
    return path


def header(events: Events, compression: int, table: int, streams: tuple[str, ...], size: bool) -> bytes:
    nodes = ""
    for number, kind in enumerate(streams):
        sizes = ATTRIBUTE.format("sizeX", events.width) + ATTRIBUTE.format("sizeY", events.height) if size else ""
        nodes += f'<node name="{number}">{ATTRIBUTE.format("typeIdentifier", kind)}<node name="info">{sizes}</node></node>'
    text = f'<dv version="2.0"><node name="outInfo">{nodes}</node></dv>'.encode()
    fields = struct.pack("<HHHHH", 10, 24, 4, 8, 16)  # a table of three fields, as FlatBuffers lays it out
    table_bytes = struct.pack("<iiqI", len(fields) + 2, compression, table, 8) + bytes(4) + struct.pack("<I", len(text)) + text + b"\0"
    buffer = struct.pack("<I4s", 8 + len(fields) + 2, b"IOHE") + fields + bytes(2) + table_bytes
    return b"#!AER-DAT4.0\r\n" + struct.pack("<I", len(buffer)) + buffer


def event_packet(events: Events) -> bytes:
    records = np.zeros(len(events), EVENT)
    records["t"], records["x"], records["y"], records["p"] = events.t, events.x.astype(np.int16), events.y.astype(np.int16), events.p
    fields = struct.pack("<HHH", 6, 8, 4)
    # Structs of 16 bytes are aligned to 8, counted from the size prefix on.
    start = 4 + 8 + 6 + 2 + 8 + 4
    pad = -start % 8
    table = struct.pack("<iI", 8, 4 + pad) + bytes(pad) + struct.pack("<I", len(records))
    buffer = struct.pack("<I4s", 8 + 6 + 2, b"EVTS") + fields + bytes(2) + table + records.tobytes()
    return struct.pack("<I", len(buffer)) + buffer
