"""PACKETS -> PORTIONS OF EVENTS: standard input, TCP and UDP, as `saccade send` sends them; what is damaged or lost is counted."""

import logging
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from saccade.sources.packets import HEADER, MAGIC, MOST_BYTES, SequenceNumbers, decode, length_of
from saccade.sources.source import POLL_S, Source
from saccade.types import Events, Faults, InputError

log = logging.getLogger("saccade")

ADVICE = 'check the sender, or skip such packets with faults="skip"'
LOOPBACK = "127.0.0.1"
MOST_JOINED = 64  # waiting datagrams that become one portion
SILENCE_S = 1.0  # of a UDP sender, after which another may take its place: one that restarts has a new port


class Pipe(Source):
    """Packets (`saccade.sources.packets`) from standard input, or from any other file descriptor."""

    patient = True

    def __init__(self, number: int | None = None, *, faults: Faults = "raise", name: str = "standard input") -> None:
        self.number, self.faults, self.name = sys.stdin.fileno() if number is None else number, faults, name
        self.bad = 0  # damaged or incomplete packets, with faults="skip"

    def __iter__(self) -> Iterator[Events]:
        held, place = b"", 0  # at most one packet and one read
        while not self.closed:
            if not select.select([self.number], [], [], POLL_S)[0]:
                continue
            data = os.read(self.number, 1 << 18)
            held += data
            found, used = [], 0
            try:
                for events, used in self._packets(held, place):  # noqa: B007  the last value is used below
                    if events is not None:
                        found.append(events)
            finally:  # packets before a damaged one are good
                yield from joined(found)
            held, place = held[used:], place + used
            if not data:
                if held:
                    self._fault(f"ends inside a packet, after {place:,} bytes")
                return

    def _packets(self, held: bytes, place: int) -> Iterator[tuple[Events | None, int]]:
        """Events of every whole packet (None if it is damaged) and where it ends in HELD. PLACE: position of HELD in the stream."""
        start = 0
        while len(held) - start >= HEADER.size:
            events = None
            try:
                length = length_of(held[start : start + HEADER.size])
                if len(held) - start < length:
                    return
                _, events = decode(held[start : start + length])
            except InputError as error:
                self._fault(f"the packet at byte {place + start:,} {error}")
                following = held.find(MAGIC, start + 1)
                length = (following if following > 0 else len(held) - len(MAGIC) + 1) - start  # a magic may begin in the last bytes
            start += length
            yield events, start

    def _fault(self, what: str) -> None:
        if self.faults == "raise":
            raise InputError(f"{self.name}: {what}; {ADVICE}")
        self.bad += 1

    def __repr__(self) -> str:
        return self.name


class Tcp(Pipe):
    """Packets of the first client that sends one; those that leave before (port scans, health checks) don't end the stream.

    HOST: the address to listen on, by default this machine's only; "" is every network.
    lasting: when that client leaves the next one is waited for, until `close()`.
    """

    def __init__(self, port: int, host: str = LOOPBACK, *, faults: Faults = "raise", lasting: bool = False) -> None:
        self.lasting = lasting
        self._listener = _bound(socket.SOCK_STREAM, host, port)
        self._listener.listen(1)
        self.port = int(self._listener.getsockname()[1])
        super().__init__(self._listener.fileno(), faults=faults, name=f"tcp://{host}:{self.port}")

    def __iter__(self) -> Iterator[Events]:
        started, left = False, 0  # whether a packet came of this client; clients that left before
        while not self.closed and (self.lasting or not started):
            if not select.select([self._listener], [], [], POLL_S)[0]:
                continue
            connection, client = self._listener.accept()
            started = False
            with connection:
                self.number = connection.fileno()
                try:
                    for events in super().__iter__():
                        started = True
                        yield events
                except ConnectionError as error:
                    if started:
                        self._fault(f"the connection broke ({error})")
            if not started and not self.closed:
                left += 1
                if left == 1:  # logged once: a health check may come every second
                    log.warning("%s: %s:%s left before its first packet; waiting for the next client", self.name, *client[:2])
            elif self.lasting and not self.closed:
                log.warning("%s: %s:%s has left; waiting for the next client", self.name, *client[:2])
        self._listener.close()


class Udp(Source):
    """One packet per datagram, from one sender at a time; `lost` counts missing ones, `foreign` those of other senders meanwhile.

    The first sender is listened to until it was silent for SILENCE_S; then the next one with a valid packet takes its place.
    Anybody can send to a port: a datagram without our magic isn't the sender's fault. It is counted as `bad` and left out, whatever
    FAULTS says about damaged packets.
    """

    def __init__(self, port: int, host: str = LOOPBACK, *, faults: Faults = "skip") -> None:
        self.faults = faults
        self._socket = _bound(socket.SOCK_DGRAM, host, port)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self.name = f"udp://{host}:{self.port}"
        self.sequence = SequenceNumbers()
        self._sender: Any = None
        self._heard_s = 0.0  # when its newest datagram came

    def __iter__(self) -> Iterator[Events]:
        with self._socket:
            while not self.closed:
                if select.select([self._socket], [], [], POLL_S)[0]:
                    for events in joined([events for events in (self._receive() for _ in range(MOST_JOINED)) if events is not None]):
                        paused_s = time.monotonic()
                        yield events
                        self._heard_s += time.monotonic() - paused_s  # datagrams wait in the socket meanwhile: that is no silence

    def _receive(self) -> Events | None:
        try:
            packet, sender = self._socket.recvfrom(MOST_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        known, now_s = self._sender in (None, sender), time.monotonic()
        if not known and now_s - self._heard_s < SILENCE_S:
            self._leave_out(sender)
            return None
        try:
            number, events = decode(packet)
        except InputError as error:
            if not known:
                self._leave_out(sender)
                return None
            if self._sender == sender:
                self._heard_s = now_s
            is_packet = packet.startswith(MAGIC)
            if not is_packet and not self.bad:  # logged once: there may be thousands a second
                log.warning("%s: a datagram from %s:%s is left out: it %s", self.name, *sender[:2], error)
            if is_packet and self.faults == "raise":
                raise InputError(f"{self.name}: a packet from {sender[0]} {error}; {ADVICE}") from error
            self.bad += 1
            return None
        if not known:
            log.warning("%s: %s:%s was silent; listening to %s:%s from now on", self.name, *self._sender[:2], *sender[:2])
            self.sequence.restart()
        self._sender, self._heard_s = sender, now_s
        new = self.sequence.is_new(number)
        self.lost = self.sequence.lost
        return events if new else None

    def _leave_out(self, sender: Any) -> None:
        """Count a packet of another sender than the one listened to."""
        if not self.foreign:  # logged once
            log.warning("%s: packets from %s:%s are left out while %s:%s sends", self.name, *sender[:2], *self._sender[:2])
        self.foreign += 1

    def __repr__(self) -> str:
        return self.name


def joined(portions: list[Events]) -> list[Events]:
    """One portion, if all are from one sensor size: every portion costs the stream a little."""
    sensors = {(one.width, one.height) for one in portions}
    return [Events.join(portions)] if len(sensors) == 1 else portions


def _bound(kind: socket.SocketKind, host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        opened = socket.socket(family, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
    except (OSError, OverflowError) as error:
        raise InputError(f"can't listen on {host or 'every network'}, port {port} ({error}); is another program there?") from error
    return opened
