"""EVENTS -> NETWORK: the other end of TCP and UDP sources, `saccade send`."""

import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from saccade.sources.open import parse_source
from saccade.sources.packets import packets
from saccade.types import Events, InputError

log = logging.getLogger("saccade")

MOST_TCP, MOST_UDP = 4096, 179  # events a packet; a datagram of 179 fits into one Ethernet frame
WAIT_S = 10.0  # for somebody to listen
RETRY_S = 0.2


def send_events(portions: Iterable[Events], target: Path | str, *, wait_s: float = WAIT_S) -> int:
    """Send all portions to tcp://HOST:PORT or udp://HOST:PORT, or write them to standard output (-); returns the number of events."""
    kind, host, port, _ = parse_source(target)
    if kind not in ("tcp", "udp", "pipe"):
        raise InputError(f"{target}: can't be sent to; expected tcp://HOST:PORT, udp://HOST:PORT or -")
    if kind == "pipe":
        return _send_all(portions, sys.stdout.buffer.write, MOST_TCP, str(target))
    with _connect(kind, host, port, wait_s) as connection:
        return _send_all(portions, connection.sendall, MOST_TCP if kind == "tcp" else MOST_UDP, str(target))


def _send_all(portions: Iterable[Events], put: Callable[[bytes], object], most: int, target: str) -> int:
    sent = number = 0
    try:
        for events in portions:
            for packet in packets(events, most, number):
                put(packet)
                number += 1
            sent += len(events)
    except ConnectionRefusedError as error:  # a datagram came back
        raise InputError(f"{target}: nobody listens there any more, after {sent:,} events; is the receiver running?") from error
    except (ConnectionError, OSError) as error:
        if target == "-":
            raise
        raise InputError(f"{target}: the connection broke after {sent:,} events ({error}); is the receiver still running?") from error
    return sent


def _connect(kind: str, host: str, port: int, wait_s: float) -> socket.socket:
    until_s, said = time.monotonic() + wait_s, False
    while True:
        try:
            if kind == "tcp":
                return socket.create_connection((host, port), timeout=None)
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            opened = socket.socket(family, socket.SOCK_DGRAM)
            opened.connect(address)
            return opened
        except ConnectionRefusedError as error:
            if time.monotonic() >= until_s:
                raise InputError(f"{kind}://{host}:{port}: nobody listens there; start the receiver first, e.g. `saccade live`") from error
            if not said:
                log.warning("%s://%s:%s: nobody listens there yet; waiting up to %.0f s", kind, host, port, wait_s)
                said = True
            time.sleep(RETRY_S)
        except OSError as error:
            raise InputError(f"{kind}://{host}:{port}: can't be reached ({error}); check host and port") from error
