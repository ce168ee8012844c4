"""NAME -> SOURCE: the one parser of what a recording or a live source is called, for every command and for `Stream.run`."""

import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from saccade.events.open import dsec_events, open_events
from saccade.events.reader import Reader
from saccade.events.write import write_events
from saccade.s3 import located
from saccade.samples import STREET
from saccade.sources.network import LOOPBACK, Pipe, Tcp, Udp
from saccade.sources.source import Replay, Source
from saccade.types import Events, Faults, InputError

NAMES = {  # as errors and docs/live.md list them
    "drive.raw": "a recording, as fast as it can be read; `street` is one that comes with saccade",
    "drive.raw@1": "the same at its own speed, as a camera would deliver it; `@0.1` is slow motion",
    "-": "packets from standard input",
    "tcp://127.0.0.1:7700": "packets of whoever connects there; `tcp://:7700` from this machine, `tcp://0.0.0.0:7700` from any",
    "udp://127.0.0.1:7700": "packets, one per datagram",
    "camera:": "the first camera that is found; `prophesee:SERIAL` through Metavision, `inivation:SERIAL` through dv-processing",
    "ros2:/event_camera/events": "packets of event_camera_msgs on a ROS 2 topic, over DDS, without a ROS installation (extra `ros2`)",
    "sim:7": "drawn streets of random seed 7 that never end, at their own speed; `sim:7@0.1` is slow motion",
}
CAMERAS = ("camera", "prophesee", "inivation")
LONGEST_S = 86_400.0  # that a live source is listened to for `saccade info` and the like
STREET_S = 60.0  # of a simulated street, then the next follows
UNSEEN, MILLION = 900_000, 1_000_000  # seeds of streets that are for tests: no training of ours has seen them


class SourceName(NamedTuple):
    """What a name says; `parse_source` reads it."""

    kind: Literal["file", "pipe", "tcp", "udp", "sim", "camera", "prophesee", "inivation", "ros2"]
    place: str  # the file, the host, the seed, the serial number, the topic
    port: int = 0
    speed: float | None = None  # of @1; None if it isn't stated


def parse_source(name: Path | str) -> SourceName:
    """Any name of NAMES; a file of that name goes before every other meaning, and the folder of a sequence of DSEC is its recording."""
    text = str(name)
    path = located(text)
    if path.exists():
        return SourceName("file", str(dsec_events(path) or text))
    if text == "-":
        return SourceName("pipe", text)
    if text.startswith(("tcp:", "udp:")):
        return _address(text)
    if text.startswith("ros2:"):
        return SourceName("ros2", text.removeprefix("ros2:"))
    place, speed = _speed(text)
    kind, colon, rest = place.partition(":")
    if kind == "sim" and colon:
        if not re.fullmatch(r"\d{1,9}", rest):
            raise InputError(f"{text}: expected sim:SEED, a whole number from 0 on, such as sim:7")
        return SourceName("sim", rest, speed=speed)
    if kind in CAMERAS and colon:
        if speed is not None:
            raise InputError(f"{text}: a camera has its own speed; leave @{speed:g} out")
        return SourceName(kind, rest)  # type: ignore[arg-type]  # one of CAMERAS
    if place == "street" and not Path(place).exists():
        place = str(STREET)
    path = located(place)
    if not path.exists() and (re.match(r"[a-z][a-z0-9+]+:", text) or not (path.suffix or path.parent.name)):
        raise InputError(f"{text}: no such file, and no source of another kind; expected one of {', '.join(NAMES)}")
    return SourceName("file", place, speed=speed)


def open_source(
    name: Path | str, *, speed: float | None = None, faults: Faults = "raise", lasting: bool = False, **opening: Any
) -> "Source | Reader":
    """Any source by its name, see NAMES.

    speed: of a recording whose name states none; None: as fast as it can be read.
    lasting: a TCP source waits for the next client when one leaves, instead of ending. opening: options of `open_events`, for files.
    """
    kind, place, port, stated = parse_source(name)
    if kind == "file":
        reader = open_events(place, **opening)
        speed = speed if stated is None else stated
        return reader if speed is None else Replay(reader, speed)
    if kind == "pipe":
        return Pipe(faults=faults)
    if kind == "tcp":
        return Tcp(port, place, faults=faults, lasting=lasting)
    if kind == "udp":
        return Udp(port, place, faults=faults)
    if kind == "sim":
        return Replay(EndlessStreet(int(place)), stated or speed or 1.0)
    if kind == "ros2":
        from saccade.sources.ros2 import Ros2Topic

        return Ros2Topic(place, faults=faults)
    from saccade.sources.cameras import open_camera

    return open_camera(kind, place)


@contextmanager
def recorded(name: Path | str, seconds: float, **opening: Any) -> Iterator[Reader]:
    """A recording on disk, or what comes from a live source within SECONDS, in a file that lasts as long as the block."""
    if parse_source(name).kind == "file":
        with open_recording(name, **opening) as reader:
            yield reader
        return
    if not 0 < seconds <= LONGEST_S:
        raise InputError(f"{name}: --seconds {seconds:g} of a live source; expected a number above 0, up to {LONGEST_S:g}")
    with TemporaryDirectory(prefix="saccade-") as folder, open_source(name, faults="skip") as source:
        ending = threading.Timer(seconds, source.close)
        ending.daemon = True
        ending.start()
        coming = _until(time.monotonic() + seconds, source)
        first = next(coming, None)
        if first is None:
            raise InputError(f"{name}: nothing came for {seconds:g} s; is somebody sending? --seconds waits longer")
        path = Path(folder) / "live.h5"
        write_events(chain([first], coming), path)
        with open_events(path) as reader:
            yield reader


def _until(end_s: float, source: Iterable[Events]) -> Iterator[Events]:
    """Portions with events up to a time of the monotonic clock, one at least; a source that never rests doesn't notice being closed."""
    for events in source:
        if len(events):
            yield events
            if time.monotonic() >= end_s:
                return


def open_recording(name: Path | str, **opening: Any) -> Reader:
    """A recording on disk, for what needs its beginning and its end; at which speed it would be played plays no role."""
    kind, place, _, _ = parse_source(name)
    if kind != "file":
        raise InputError(f"{name}: is a live source, without a beginning and an end; expected a recording on disk, such as drive.raw")
    return open_events(place, **opening)


class EndlessStreet:
    """Drawn streets, one after the other, in one time that goes on; every minute another one, unlike those of any training."""

    width, height = 160, 128

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __iter__(self) -> Iterator[Events]:
        from saccade.simulate.plan import make_scene
        from saccade.simulate.simulation import simulate

        for number in count():
            street = make_scene(MILLION * self.seed + UNSEEN + number % (MILLION - UNSEEN), self.width, self.height, STREET_S)
            begin_us = number * street.duration_us
            for events in simulate(street):
                yield Events(events.t + begin_us, events.x, events.y, events.p, events.width, events.height)

    def __repr__(self) -> str:
        return f"sim:{self.seed}"


def _speed(text: str) -> tuple[str, float | None]:
    """Name and speed of NAME@SPEED."""
    place, sign, stated = text.rpartition("@")
    if not sign or not place:
        return text, None
    try:
        speed = float(stated)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1e6:
        raise InputError(f"{text}: no such file; after @ a speed is expected, above 0: {place}@1 is its own, {place}@0.1 slow motion")
    return place, speed


def _address(text: str) -> SourceName:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if port is None or not text.startswith(("tcp://", "udp://")):
        raise InputError(f"{text}: expected {text[:3]}://HOST:PORT, e.g. {text[:3]}://127.0.0.1:7700")
    return SourceName("tcp" if text.startswith("tcp") else "udp", host or LOOPBACK, port)
