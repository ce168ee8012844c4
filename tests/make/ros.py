"""ROS 1 bags by `rosbags`, MCAP files by `mcap`: writers that share nothing with our reader. Per-event objects: for small recordings."""

from pathlib import Path

import numpy as np
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag1 import Writer as BagWriter
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from saccade.types import Events
from tests.make.prophesee import evt2, evt3

EVENT = "uint16 x\nuint16 y\nbuiltin_interfaces/Time ts\nbool polarity\n"
SIZED = "std_msgs/Header header\nuint32 height\nuint32 width\n"
ARRAY = SIZED + "{}/Event[] events\n"
PACKET = SIZED + "uint64 seq\nuint64 time_base\nstring encoding\nbool is_bigendian\nuint8[] events\n"
KINDS = {
    "dvs": "dvs_msgs/msg/EventArray",
    "prophesee": "prophesee_event_msgs/msg/EventArray",
    "evt3": "event_camera_msgs/msg/EventPacket",
    "evt2": "event_camera_msgs/msg/EventPacket",
    "mono": "event_camera_msgs/msg/EventPacket",
    "libcaer_cmp": "event_camera_msgs/msg/EventPacket",
}


def typestore(ros: int):
    store = get_typestore(Stores.ROS1_NOETIC if ros == 1 else Stores.ROS2_HUMBLE)
    for package in ("dvs_msgs", "prophesee_event_msgs"):
        store.register(get_types_from_msg(EVENT, f"{package}/msg/Event"))
        store.register(get_types_from_msg(ARRAY.format(package), f"{package}/msg/EventArray"))
    store.register(get_types_from_msg(PACKET, KINDS["evt3"]))
    return store


def messages(store, ros: int, events: Events, kind: str, per_message: int, frame: str = "cam", big_endian: bool = False, skip: int = 0):
    """Time in ns and serialised bytes of every message; `skip` words of EVT3 or EVT2 are missing at the beginning."""
    types = store.types
    encode, size_of_word = {"evt3": (evt3, 2), "evt2": (evt2, 4)}.get(kind, (None, 2))
    whole = np.zeros(0) if encode is None else np.frombuffer(encode(events), f"<u{size_of_word}")[skip:]
    length = len(events) if encode is None else len(whole)
    for number, first in enumerate(range(0, max(length, 1), per_message)):
        part = events[first : first + per_message]
        stamp = types["builtin_interfaces/msg/Time"](sec=5, nanosec=number)
        head = types["std_msgs/msg/Header"](**({"seq": number} if ros == 1 else {}), stamp=stamp, frame_id=frame)
        size = {"header": head, "height": events.height, "width": events.width}
        if kind in ("dvs", "prophesee"):
            event = types[KINDS[kind].replace("EventArray", "Event")]
            rows = zip(part.t.tolist(), part.x.tolist(), part.y.tolist(), part.p.tolist(), strict=True)
            time = types["builtin_interfaces/msg/Time"]
            listed = [event(x=x, y=y, ts=time(sec=t // 10**6, nanosec=t % 10**6 * 1000 + 999), polarity=p) for t, x, y, p in rows]
            message = types[KINDS[kind]](**size, events=listed)
        else:
            base = int(part.t[0]) * 1000 if len(part) and kind == "mono" else 12345
            order = ">" if big_endian else "<"
            if kind == "mono":
                dt, x, y, p = part.t * 1000 - base, part.x.astype(np.uint64), part.y.astype(np.uint64), part.p.astype(np.uint64)
                data = (p << 63 | y << 48 | x << 32 | dt.astype(np.uint64)).astype(f"{order}u8").tobytes()
            else:
                data = whole[first : first + per_message].astype(f"{order}u{size_of_word}").tobytes()
            packet = {
                "seq": number,
                "time_base": base,
                "encoding": kind,
                "is_bigendian": big_endian,
                "events": np.frombuffer(data, np.uint8),
            }
            message = types[KINDS[kind]](**size, **packet)
        serialise = store.serialize_ros1 if ros == 1 else store.serialize_cdr
        yield 10**9 + number * 10**6, bytes(serialise(message, KINDS[kind]))


def write(
    path: Path, events: Events, *, kind: str = "dvs", per_message: int = 50, compression: str = "lz4", topics=("/cam/events",), **options
) -> Path:
    """A bag or an MCAP, by the suffix. The same events on every topic, among messages of another type."""
    return (write_bag if path.suffix == ".bag" else write_mcap)(path, events, kind, per_message, compression, topics, options)


def write_bag(path: Path, events: Events, kind: str, per_message: int, compression: str, topics, options) -> Path:
    path.unlink(missing_ok=True)
    store = typestore(1)
    writer = BagWriter(path)
    if compression != "none":
        writer.set_compression(BagWriter.CompressionFormat[compression.upper()])
    with writer:
        writer.chunk_threshold = 4096
        other = writer.add_connection("/chat", "std_msgs/msg/String", typestore=store)
        connections = [writer.add_connection(topic, KINDS[kind], typestore=store) for topic in topics]
        for time, data in messages(store, 1, events, kind, per_message, **options):
            writer.write(other, time, store.serialize_ros1(store.types["std_msgs/msg/String"](data="hello"), "std_msgs/msg/String"))
            for connection in connections:
                writer.write(connection, time, data)
    return path


def write_mcap(path: Path, events: Events, kind: str, per_message: int, compression: str, topics, options) -> Path:
    store = typestore(2)
    with path.open("wb") as file:
        chunked = compression != "unchunked"
        writer = McapWriter(
            file, chunk_size=4096, compression=CompressionType[compression.upper() if chunked else "NONE"], use_chunking=chunked
        )
        writer.start("ros2")
        chat = writer.register_channel("/chat", "cdr", writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data"))
        schema = writer.register_schema(KINDS[kind], "ros2msg", b"")
        channels = [writer.register_channel(topic, "cdr", schema) for topic in topics]
        for time, data in messages(store, 2, events, kind, per_message, **options):
            writer.add_message(chat, time, b"\x00\x01\x00\x00\x06\x00\x00\x00hello\x00", time)
            for channel in channels:
                writer.add_message(channel, time, data, time)
        writer.finish()
    return path
