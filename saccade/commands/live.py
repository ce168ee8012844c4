"""EVENTS AS THEY COME: `saccade live`, a page that shows them and what is found, and `saccade send`, which passes them on."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.commands.options import Device, RateOption
from saccade.commands.recordings import AS_STATED, AnySource, Opening, Reading
from saccade.events.reader import Reader
from saccade.live import FASTEST_HZ, SLOWEST_HZ
from saccade.machine import check_extra
from saccade.sources.network import LOOPBACK
from saccade.sources.open import open_source
from saccade.sources.ros2 import dds_topic
from saccade.sources.send import send_events
from saccade.sources.source import Replay, Source
from saccade.types import InputError

if TYPE_CHECKING:
    from saccade.live.session import Session

log = logging.getLogger("saccade")

LEAST_SCORE = 0.1  # of boxes that are sent to the page, which shows those above its own threshold

Receiver = Annotated[
    str | Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET", help="tcp://HOST:PORT, udp://HOST:PORT, or - for standard output.")
]


def live(
    source: AnySource,
    *,
    weights: str | Path = "nano",
    rate_hz: RateOption = 200.0,
    beside: tuple[str, ...] = (),
    host: str = LOOPBACK,
    port: int = 8600,
    repeat: bool = True,
    foxglove: int | None = None,
    publish: str | None = None,
    save_into: Path = Path(),
    device: Device = "auto",
    threads: int = 0,
    opening: Reading = AS_STATED,
) -> None:
    """Watch events and what is found in them in a browser, and turn the rate while it runs: `saccade live street`, `saccade live camera:`.

    The page is served to this machine only, unless --host says otherwise; then its address holds a token, without which nobody gets in.
    Recordings play at their own speed, drive.raw@0.1 in slow motion. The detector never waits for a page.

    Args:
        weights: A weights file, or a name of weights that come with saccade.
        rate_hz: Answers per second of event time, 1 to 1000; the page can change it.
        beside: Further weights; on the same events, each in a panel of its own, such as rvt-nano.
        host: Address to serve the page on; 0.0.0.0 is every network of this machine.
        port: Port to serve the page on; 0 = any that is free.
        repeat: Begin a recording again when it ends; --no-repeat stops there.
        foxglove: Port of this machine for Foxglove, such as 8765: events as images, boxes over them, rate and least score as parameters.
        publish: Topic for the boxes, such as ros2:/detections: a vision_msgs/Detection2DArray for every answer, without a ROS installation.
        save_into: Folder for what the page's button saves.
        device: Where to compute; auto: the GPU if there is one.
        threads: CPU threads; 0 = as many as the runtime likes.
    """
    if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
        raise InputError(f"--rate {rate_hz:g}: expected {SLOWEST_HZ:g} to {FASTEST_HZ:g}")
    if threads < 0:
        raise InputError(f"--threads {threads}: expected 1 or more, or 0 to leave the choice to the runtime")
    several = {Path(name).stem: name for name in (weights, *beside)}
    if len(several) <= len(beside):
        raise InputError(f"--beside {' '.join(beside)}: two have the same name; rename one, panels go by it")
    for package in ("starlette", "uvicorn", "websockets"):
        check_extra("the live page", package, "live")
    _check_others(foxglove, publish, save_into)
    from saccade.live.panel import warm_up
    from saccade.live.server import is_loopback, listen, make_server, page_address
    from saccade.live.session import Session
    from saccade.stream.stream import Stream

    token = None if is_loopback(host) else secrets.token_urlsafe(16)
    with listen(host, port) as listener, open_source(source, speed=1.0, faults="skip", lasting=True, **vars(opening)) as opened:
        assert isinstance(opened, Source)  # files have a speed here
        streams = {
            name: Stream(file, rate_hz, score=LEAST_SCORE, faults="skip", device=device, threads=threads or None)
            for name, file in several.items()
        }
        reader = opened.source if isinstance(opened, Replay) and isinstance(opened.source, Reader) else None
        for stream in streams.values():
            warm_up(stream, None if reader is None else (reader.width, reader.height))
        measure = None if reader is None else (lambda: _limits(source, opening))
        session = Session(str(source), opened, streams, repeats=repeat, measure=measure, folder=save_into)
        with _others(session, foxglove, publish) as told:
            session.start()
            print(f"{page_address(listener, token)}\n{told}serving {source} at {rate_hz:g} Hz; Ctrl-C ends it", flush=True)
            try:
                make_server(session, token).run(sockets=[listener])
            except KeyboardInterrupt:  # how it is meant to end
                pass
            finally:
                session.close()
    for panel in session.panels:
        print(f"{panel.name}: {panel.counters}")


def _check_others(foxglove: int | None, publish: str | None, save_into: Path) -> None:
    """Before anything is opened."""
    if not save_into.is_dir():
        raise InputError(f"--save-into {save_into}: no such folder; make it first")
    if foxglove is not None:
        if not 0 <= foxglove < 1 << 16:
            raise InputError(f"--foxglove {foxglove}: expected a port, such as 8765, or 0 for any that is free")
        check_extra("--foxglove", "foxglove", "foxglove")
    if publish is not None:
        if not publish.startswith("ros2:"):
            raise InputError(f"--publish {publish}: expected a topic of ROS 2, such as ros2:/detections")
        dds_topic(publish.removeprefix("ros2:"))
        check_extra("--publish", "cyclonedds", "ros2")


@contextmanager
def _others(session: "Session", foxglove: int | None, publish: str | None) -> Iterator[str]:
    """Those who get what the page gets; gives the lines that say where."""
    server, told = None, ""
    if publish is not None:
        from saccade.live.ros2 import publish_to

        publish_to(session, publish.removeprefix("ros2:"))
        told += f"boxes on {publish}\n"
    if foxglove is not None:
        from saccade.live.foxglove import FoxgloveServer

        server = FoxgloveServer(session, foxglove)
        server.start()
        told += f"ws://{LOOPBACK}:{server.port} for Foxglove\n"
    try:
        yield told
    finally:
        if server is not None:
            server.close()


def _limits(source: Path | str, opening: Opening) -> tuple[int, int]:
    """By a reader of its own: the other one is playing."""
    with opening.open(source) as reader:
        return reader.start_us, reader.end_us


def send(source: AnySource, target: Receiver, *, speed: float = 1.0, opening: Reading = AS_STATED) -> None:
    """Send the events of SOURCE, a recording or a camera, to `saccade live` or `detect`: `saccade send drive.raw tcp://127.0.0.1:7700`.

    Args:
        speed: Of a recording, how many times its own; 0 = as fast as the receiver takes it. drive.raw@2 states it as well.
    """
    if not 0 <= speed <= 1e6:
        raise InputError(f"--speed {speed:g}: expected 1 for its own speed, more to be faster, or 0 for as fast as possible")
    with open_source(source, speed=speed or None, **vars(opening)) as opened:
        sent = send_events(opened, target)
    log.warning("%s: %s events sent", opened.path if isinstance(opened, Reader) else source, f"{sent:,}")
