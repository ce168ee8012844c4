"""Sources: packets survive the wire or are named, listening stays on this machine, a file can play at its own pace."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import saccade
from saccade.events.write import write_events
from saccade.sources.open import Pipe, Replay, Tcp, Udp, open_source
from saccade.sources.packets import HEADER, MOST_BYTES, MOST_EVENTS, SequenceNumbers, decode, encode, length_of, packets
from saccade.stream.live import LiveSettings
from saccade.stream.stream import Stream
from saccade.types import Events, InputError
from tests.make.events import assert_equal
from tests.make.events import events as any_events
from tests.stream.streams import Idle, events


@given(any_events(ordered=False), st.integers(0, (1 << 32) - 1), st.integers(-(1 << 50), 1 << 50))
def test_a_packet_is_its_events(some: Events, number: int, shift_us: int) -> None:
    moved = Events(some.t + shift_us, some.x, some.y, some.p, some.width, some.height)
    data = encode(moved, number)
    assert len(data) == length_of(data[: HEADER.size]) <= MOST_BYTES
    got, back = decode(data)
    assert got == number
    assert_equal(back, moved)


@given(st.integers(0, 500), st.integers(0, 7), st.binary(max_size=40))
def test_damage_is_noticed(place: int, bit: int, tail: bytes) -> None:
    data = bytearray(encode(events(50)))
    for damaged in (data[: place % len(data)], data + tail + b"x"):
        with pytest.raises(InputError):
            decode(bytes(damaged))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(InputError):
        decode(bytes(data))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_noise_is_no_packet(noise: bytes) -> None:
    with pytest.raises(InputError):
        decode(noise)
    with pytest.raises(InputError):
        decode(b"SEV1" + noise)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="too many for one"):
        encode(events(MOST_EVENTS + 1))
    with pytest.raises(InputError, match="too many for one"):
        encode(events(10, span_us=1 << 40))
    with pytest.raises(InputError, match="sensor"):
        encode(events(1, width=1 << 15, height=2))
    assert Events.join([decode(packet)[1] for packet in packets(events(1000))]).t.tolist() == events(1000).t.tolist()


def test_lost_repeated_and_reordered_packets_are_told_apart() -> None:
    sequence = SequenceNumbers()
    assert [sequence.is_new(number) for number in (7, 8, 12, 10, 10, 8, 13)] == [True, True, True, True, False, False, True]
    assert (sequence.lost, sequence.repeated) == (2, 2)
    wrapped = SequenceNumbers()
    assert all(wrapped.is_new(number % (1 << 32)) for number in range((1 << 32) - 3, (1 << 32) + 3))
    assert wrapped.lost == 0
    restarted = SequenceNumbers()
    assert all(restarted.is_new(number) for number in range(100))
    assert [restarted.is_new(number) for number in range(20)] == [False] * 7 + [True] * 13


def test_a_pipe_gives_what_was_written() -> None:
    whole = events(5000)
    data = b"".join(packets(whole, 700))
    reading, writing = os.pipe()

    def write() -> None:
        for first in range(0, len(data), 4567):  # across the packets
            os.write(writing, data[first : first + 4567])
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    with Pipe(reading) as source:
        assert_equal(Events.join(list(source)), whole)
    thread.join()
    os.close(reading)


@pytest.mark.parametrize("damage", ["flip", "noise", "cut"])
def test_damage_in_the_middle_of_a_pipe_is_named_or_skipped(damage: str, tmp_path: Path) -> None:
    whole, parts = events(3000), list(packets(events(3000), 300))
    parts[4] = {"flip": parts[4][:50] + b"\xff\x00" + parts[4][52:], "noise": b"SEV1" + os.urandom(5000), "cut": parts[4][:77]}[damage]
    (tmp_path / "packets").write_bytes(b"".join(parts))
    with (tmp_path / "packets").open("rb") as file, pytest.raises(InputError, match=f"at byte {sum(map(len, parts[:4])):,} "):
        list(Pipe(file.fileno()))
    with (tmp_path / "packets").open("rb") as file, Pipe(file.fileno(), faults="skip") as source:
        got = Events.join(list(source))
        assert source.bad >= 1
    assert_equal(got, Events.join([whole[:1200], whole[1500:]]))


def test_a_pipe_that_ends_inside_a_packet_says_so(tmp_path: Path) -> None:
    (tmp_path / "packets").write_bytes(b"".join(packets(events(1000), 300))[:-5])
    with (tmp_path / "packets").open("rb") as file, pytest.raises(InputError, match="ends inside a packet"):
        list(Pipe(file.fileno()))


def send_tcp(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(data)


def send_udp(port: int, parts: list[bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for part in parts:
            sender.sendto(part, ("127.0.0.1", port))
            time.sleep(0.0005)


def meanwhile(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread


def test_tcp_gives_what_was_sent() -> None:
    whole = events(20_000)
    with Tcp(0) as source:
        thread = meanwhile(send_tcp, source.port, b"".join(packets(whole, 5000)))
        assert_equal(Events.join(list(source)), whole)
        thread.join()


def test_a_stream_runs_on_a_connection() -> None:
    whole = events(20_000, span_us=500_000)
    expected = Stream(Idle(), 100)
    ends = [one.time_us for one in expected.push(whole) + expected.finish()]
    stream = Stream(Idle(), 100, live=LiveSettings(overload="wait", patience_us=10**9))
    source = Tcp(0)
    thread = meanwhile(send_tcp, source.port, b"".join(packets(whole, 5000)))
    assert [one.time_us for one in stream.run(source)] == ends
    thread.join()
    assert stream.counters.events == len(whole)
    assert source.closed


def test_udp_counts_what_was_lost_damaged_or_strange() -> None:
    whole, parts = events(2000), list(packets(events(2000), 100))
    sent = [*parts[:3], *parts[5:10], parts[9], b"noise", *parts[10:]]  # two lost, one twice, one damaged
    with Udp(0) as source:
        thread = meanwhile(send_udp, source.port, sent)
        got: list[Events] = []
        for portion in source:
            got.append(portion)
            if sum(map(len, got)) >= 1800:
                break
        thread.join()
        assert_equal(Events.join(got), Events.join([whole[:300], whole[500:]]))
        assert (source.lost, source.sequence.repeated, source.bad) == (2, 1, 1)


def test_noise_does_not_end_a_udp_source_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """Before and after the first packet, from the sender and from elsewhere; damage to a packet does."""
    parts = list(packets(events(300), 100))
    damaged = parts[2][:50] + bytes([parts[2][50] ^ 0xFF]) + parts[2][51:]
    with Udp(0, faults="raise") as source:
        send_udp(source.port, [b"who is there?", b"x" * 1000])
        send_udp(source.port, [parts[0], b"noise", parts[1]])
        got: list[Events] = []
        for portion in source:
            got.append(portion)
            if sum(map(len, got)) >= 200:
                break
        assert_equal(Events.join(got), events(300)[:200])
        assert (source.bad, source.foreign) == (3, 0)
    assert [record.levelname for record in caplog.records if "datagram from 127.0.0.1" in record.message] == ["WARNING"]
    with Udp(0, faults="raise") as source:
        send_udp(source.port, [damaged])
        with pytest.raises(InputError, match="checksum is wrong"):
            next(iter(source))


def test_a_udp_sender_that_restarts_on_a_new_port_is_heard_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Packets of others are counted and logged once; after silence the next valid one takes over, numbered from anywhere."""
    monkeypatch.setattr("saccade.sources.open.SILENCE_S", 0.3)
    whole, noise = events(3000), events(100, seed=5)
    first, second = list(packets(whole[:1000], 100, sequence=70)), list(packets(whole[1000:], 100, sequence=3))
    stream = Stream(Idle(), 100, live=LiveSettings(patience_us=10**9))
    source = Udp(0)

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for part in first:
                sender.sendto(part, ("127.0.0.1", source.port))
                send_udp(source.port, [encode(noise)])  # from a port of its own, while the first one sends
        time.sleep(0.5)
        send_udp(source.port, [b"noise", first[0][:-1]])  # after silence, but no packets: they don't take over
        send_udp(source.port, second)
        while source.foreign < len(first) + 2 or source.sequence._next != len(second) + 3:
            time.sleep(0.01)
        source.close()

    thread = meanwhile(send)
    found = list(stream.run(source))
    thread.join()
    assert found[-1].time_us >= int(whole.t[-1])
    assert stream.counters.events == len(whole)
    assert (stream.counters.foreign_packets, stream.counters.lost_packets, stream.counters.bad_portions) == (len(first) + 2, 0, 0)
    said = [record.message for record in caplog.records if record.name == "saccade"]
    assert sum("are left out while" in text for text in said) == 1
    assert sum("listening to" in text for text in said) == 1


def test_a_slow_reader_does_not_make_a_udp_sender_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.sources.open.SILENCE_S", 0.1)
    parts = list(packets(events(300), 100))
    with Udp(0) as source, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        portions = iter(source)
        sender.sendto(parts[0], ("127.0.0.1", source.port))
        got = [next(portions)]
        send_udp(source.port, [encode(events(50, seed=1))])
        sender.sendto(parts[1], ("127.0.0.1", source.port))
        time.sleep(0.2)  # the reader computes
        got.append(next(portions))
        assert_equal(Events.join(got), events(300)[:200])
        assert source.foreign == 1


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_a_tcp_client_that_leaves_before_its_first_packet_does_not_end_the_stream(leave: str) -> None:
    whole = events(2000)
    with Tcp(0) as source:

        def send() -> None:
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", source.port)) as connection:
                    if leave == "reset":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            send_tcp(source.port, b"".join(packets(whole, 500)))

        thread = meanwhile(send)
        assert_equal(Events.join(list(source)), whole)
        thread.join()
        assert source.bad == 0


def test_listening_stays_on_this_machine() -> None:
    for kind in (Tcp, Udp):
        with kind(0) as source:
            opened = getattr(source, "_listener", None) or source._socket
            assert opened.getsockname()[0] == "127.0.0.1"
            opened.close()
    for name in ("tcp://:0", "udp://:0"):
        with open_source(name) as source:
            opened = getattr(source, "_listener", None) or source._socket
            assert opened.getsockname()[0] == "127.0.0.1"
            opened.close()


def test_names_open_what_they_say(tmp_path: Path) -> None:
    write_events(events(), tmp_path / "file.h5")
    with open_source(tmp_path / "file.h5") as source:
        assert not getattr(source, "live", False)
        assert source.width == 64
    with open_source(tmp_path / "file.h5", speed=2) as source:
        assert isinstance(source, Replay)
        assert (source.live, source.speed) == (True, 2)
    for name, match in {
        "tcp://x": "expected tcp://HOST:PORT",
        "udp:5": "expected udp://",
        "udp://127.0.0.1:99999": "expected udp://",
        "tcp://192.0.2.1:7": "can't listen",
    }.items():
        with pytest.raises(InputError, match=match):
            open_source(name)
    with pytest.raises(InputError, match="no such file"):
        open_source("nowhere.raw")


def test_a_camera_without_its_package_is_named() -> None:
    for name, package in {"prophesee:": "metavision_core", "inivation:DAVIS1": "dv-processing"}.items():
        try:
            __import__(package.replace("-", "_"))
        except ImportError:
            with pytest.raises(InputError, match=package):
                open_source(name)


def test_a_recording_plays_at_its_own_pace() -> None:
    whole = events(1000, start_us=5_000_000, span_us=300_000)
    began_s, got = time.perf_counter(), []
    for portion in Replay(saccade.Events.join([whole]), speed=2):
        due_s = (int(portion.t[-1]) - 5_000_000) / 1e6 / 2
        assert time.perf_counter() - began_s >= due_s - 0.01, "no event comes before its time"
        got.append(portion)
    assert_equal(Events.join(got), whole)
    assert 0.14 < time.perf_counter() - began_s < 0.8
