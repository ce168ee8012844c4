"""For tests of the live page: sessions on detectors that compute nothing, a real server on a free port, a page without a browser."""

import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from websockets.sync.client import ClientConnection, connect

from saccade.live.server import listen, make_server, page_address
from saccade.live.session import Session
from saccade.sources.source import Replay, Source
from saccade.stream.stream import Stream
from tests.stream.streams import Idle, events


@dataclass
class Served:
    session: Session
    address: str  # of the page

    def socket(self, **options: Any) -> ClientConnection:
        parts = urlsplit(self.address)
        return connect(urlunsplit(("ws", parts.netloc, "/socket", parts.query, "")), **options)


def session_of(source: Source | None = None, *, rate_hz: float = 50.0, panels: int = 1, **options: Any) -> Session:
    source = Replay(events(20_000, span_us=2_000_000), speed=1.0) if source is None else source
    return Session("drive.raw", source, {f"idle {number}": Stream(Idle(), rate_hz, faults="skip") for number in range(panels)}, **options)


@contextmanager
def served(session: Session, token: str | None = None) -> Iterator[Served]:
    with listen("127.0.0.1", 0) as listener:
        server = make_server(session, token)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        session.start()
        thread.start()
        try:
            yield Served(session, page_address(listener, token))
        finally:
            server.should_exit = True
            thread.join()
            session.close()


def read(message: str | bytes) -> tuple[dict[str, Any], np.ndarray]:
    """As the page does: the JSON, and the pixels."""
    assert isinstance(message, bytes)
    (length,) = struct.unpack_from("<I", message)
    header = json.loads(message[4 : 4 + length])
    return header, np.frombuffer(message, np.uint8, offset=4 + length).reshape(header["rows"], header["columns"])


def look(page: ClientConnection) -> dict[str, Any]:
    page.send('{"do":"ready"}')
    return read(page.recv(timeout=60))[0]


def look_until(page: ClientConnection, happened: Callable[[dict[str, Any]], object], most_s: float = 120) -> dict[str, Any]:
    until_s = time.monotonic() + most_s
    while not happened(seen := look(page)):
        assert time.monotonic() < until_s, f"never happened; the last picture says {seen}"
    return seen
