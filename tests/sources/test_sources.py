"""Sources: packets survive the wire or are named, listening stays on this machine, a file can play at its own pace."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import saccade
from saccade.commands.live import send
from saccade.commands.recordings import info
from saccade.commands.view import view
from saccade.events.write import write_events
from saccade.samples import STREET
from saccade.sources.network import Pipe, Tcp, Udp
from saccade.sources.open import NAMES, EndlessStreet, open_recording, open_source, parse_source
from saccade.sources.packets import HEADER, MOST_BYTES, MOST_EVENTS, SequenceNumbers, decode, encode, length_of, packets
from saccade.sources.send import send_events
from saccade.sources.source import Replay
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


def wait_for(happened: Callable[[], object], most_s: float = 60) -> None:
    until_s = time.monotonic() + most_s
    while not happened():
        assert time.monotonic() < until_s, "it never happened"
        time.sleep(0.01)


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
    monkeypatch.setattr("saccade.sources.network.SILENCE_S", 0.3)
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
    monkeypatch.setattr("saccade.sources.network.SILENCE_S", 0.1)
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


def test_a_name_says_kind_place_and_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("drive.h5", "odd@3", "sim:1"):
        write_events(events(), Path("written.h5"), overwrite=True)
        Path("written.h5").rename(name)
    for name, expected in {
        "drive.h5": ("file", "drive.h5", None),
        "drive.h5@1": ("file", "drive.h5", 1.0),
        "drive.h5@0.1": ("file", "drive.h5", 0.1),
        "odd@3": ("file", "odd@3", None),  # a file of that name
        "odd@3@2": ("file", "odd@3", 2.0),
        "sim:1": ("file", "sim:1", None),
        "street@1": ("file", str(STREET), 1.0),
        "-": ("pipe", "-", None),
        "tcp://:0": ("tcp", "127.0.0.1", None),
        "udp://[::1]:0": ("udp", "::1", None),
        "sim:7": ("sim", "7", None),
        "sim:7@0.5": ("sim", "7", 0.5),
        "camera:": ("camera", "", None),
        "ros2:/event_camera/events": ("ros2", "/event_camera/events", None),
        "prophesee:00A1": ("prophesee", "00A1", None),
    }.items():
        kind, place, _, speed = parse_source(name)
        assert (kind, place, speed) == expected


@pytest.mark.parametrize("name", ["ros1:/events", "rtsp://127.0.0.1", "stdin", "camera", "nowhere"])
def test_an_unknown_name_is_told_all_that_there_are(name: str) -> None:
    with pytest.raises(InputError) as caught:
        open_source(name)
    assert all(known in str(caught.value) for known in NAMES)


@pytest.mark.parametrize(
    ("name", "match"),
    [("drive.raw@fast", "after @ a speed"), ("drive.raw@0", "after @ a speed"), ("sim:x", "sim:SEED"), ("camera:@2", "own speed")],
)
def test_a_name_with_a_wrong_part_is_told_which(name: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        open_source(name)


def test_what_needs_a_recording_refuses_live_sources() -> None:
    for name in ("-", "tcp://:0", "udp://:0", "sim:7", "camera:", "ros2:/events"):
        with pytest.raises(InputError, match="live source"):
            open_recording(name)
    with open_recording("street@0.1") as reader:
        assert (reader.width, reader.height) == (160, 128)


def test_the_table_of_the_page_has_every_source() -> None:
    page = (Path(__file__).parents[2] / "docs/live.md").read_text()
    for name, meaning in NAMES.items():
        assert f"| `{name}` | {meaning} |" in page


def test_a_simulated_street_goes_on_and_is_the_same_for_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.sources.open.STREET_S", 0.1)
    first = Events.join(list(islice(EndlessStreet(7), 15)))
    assert first.ordered
    assert first.t[-1] > 200_000, "beyond the second street"
    assert_equal(Events.join(list(islice(EndlessStreet(7), 15))), first)
    assert len(Events.join(list(islice(EndlessStreet(8), 15)))) != len(first)


def test_a_paused_replay_delivers_what_it_is_stepped() -> None:
    whole = events(1000, span_us=1_000_000)
    source, got = Replay(whole, speed=1e6, portion_us=1000), list[Events]()
    source.play(0)
    reading = meanwhile(lambda: got.extend(source))
    wait_for(lambda: source._played is not None)
    source.step(300_000)
    wait_for(lambda: got and got[-1].t[-1] > 298_000)
    time.sleep(0.05)
    assert Events.join(got).t[-1] <= 300_000 + whole.t[0], "no more than that"
    source.play(1e6)
    reading.join()
    assert_equal(Events.join(got), whole)


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_what_is_sent_arrives(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By the command, from a file, into a source that was opened by its name."""
    whole = events(1500, span_us=30_000)
    write_events(whole, tmp_path / "drive.h5")
    with open_source(f"{kind}://127.0.0.1:0") as source:
        assert isinstance(source, Tcp | Udp)
        sending = meanwhile(lambda: send(tmp_path / "drive.h5", f"{kind}://127.0.0.1:{source.port}", speed=0))
        got: list[Events] = []
        for portion in source:
            got.append(portion)
            if sum(map(len, got)) == len(whole):
                source.close()
        sending.join()
        assert_equal(Events.join(got), whole)


def test_a_lasting_tcp_source_takes_one_client_after_the_other() -> None:
    whole = events(900)
    with Tcp(0, lasting=True) as source:

        def send_in_three() -> None:
            for first in (0, 300, 600):
                send_events([whole[first : first + 300]], f"tcp://127.0.0.1:{source.port}")

        sending = meanwhile(send_in_three)
        got: list[Events] = []
        for portion in source:
            got.append(portion)
            if sum(map(len, got)) == len(whole):
                source.close()
        sending.join()
        assert_equal(Events.join(got), whole)


def test_sending_to_nobody_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(InputError, match="nobody listens there"):
        send_events([events()], f"tcp://127.0.0.1:{port}", wait_s=0)
    with pytest.raises(InputError, match="can't be sent to"):
        send_events([events()], "sim:7")


def test_a_source_that_sends_nothing_is_said_to_be_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("saccade.stream.live.SILENT_S", 0.1)
    stream = Stream(Idle(), 20)
    with Tcp(0) as source:
        running = meanwhile(lambda: list(stream.run(source)))
        wait_for(lambda: "is silent" in caplog.text)
        send_events([events(500)], f"tcp://127.0.0.1:{source.port}")
        running.join()
    assert "sends again" in caplog.text
    assert stream.counters.events == 500


def test_a_camera_without_its_package_is_named() -> None:
    for name, package in {"prophesee:": "metavision_core", "inivation:DAVIS1": "dv-processing"}.items():
        try:
            __import__(package.replace("-", "_"))
        except ImportError:
            with pytest.raises(InputError, match=package):
                open_source(name)


def test_a_camera_of_dv_processing_gives_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own recording stands for the camera: it has the same methods. None is plugged in otherwise."""
    dv = pytest.importorskip("dv_processing", reason='no dv-processing; `pip install "saccade-events[inivation]"`')
    with pytest.raises(InputError, match="no camera found"):
        open_source("inivation:")
    with pytest.raises(InputError, match=r"no camera DAVIS1 with events \(RuntimeError: Could not find device"):
        open_source("inivation:DAVIS1")
    whole, store = events(5000, start_us=1_000_000), dv.EventStore()
    for t, x, y, p in zip(whole.t.tolist(), whole.x.tolist(), whole.y.tolist(), whole.p.tolist(), strict=True):
        store.push_back(t, x, y, p)
    writer = dv.io.MonoCameraWriter(str(tmp_path / "drive.aedat4"), dv.io.MonoCameraWriter.EventOnlyConfig("DAVIS1", (64, 32)))
    writer.writeEvents(store)
    del writer
    monkeypatch.setattr(dv.io.camera, "open", lambda *_: dv.io.MonoCameraRecording(str(tmp_path / "drive.aedat4")))
    with open_source("camera:DAVIS1") as source:
        assert_equal(Events.join(list(source)), whole)
        assert repr(source) == "inivation:DAVIS1"


def test_a_recording_plays_at_its_own_pace() -> None:
    whole = events(1000, start_us=5_000_000, span_us=300_000)
    began_s, got = time.perf_counter(), []
    for portion in Replay(saccade.Events.join([whole]), speed=2):
        due_s = (int(portion.t[-1]) - 5_000_000) / 1e6 / 2
        assert time.perf_counter() - began_s >= due_s - 0.01, "no event comes before its time"
        got.append(portion)
    assert_equal(Events.join(got), whole)
    assert 0.14 < time.perf_counter() - began_s < 0.8


def test_slow_motion_comes_in_finer_portions() -> None:
    """As many a second as at full speed: five pictures a second aren't smooth, and a step of 1 ms must deliver something."""
    for speed, most_us in ((1.0, 2000), (0.1, 200), (0.01, 20)):
        source = Replay(events(5000, span_us=50_000), speed=speed)
        portions = [portion for portion, _ in zip(source, range(8), strict=False)]
        assert max(int(portion.t[-1] - portion.t[0]) for portion in portions) < most_us


def test_an_endless_source_that_is_closed_before_its_first_portion_ends() -> None:
    source = open_source("sim:7")
    source.close()
    assert list(source) == []


def test_info_and_view_take_live_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(iter(open_source("sim:7")))  # compiled before the clock runs
    info("sim:7@5", seconds=3)
    said = capsys.readouterr().out
    assert "source   sim:7@5" in said
    assert "sensor   160 x 128 pixels" in said
    view("sim:7@5", tmp_path / "frames.png", seconds=3)
    assert (tmp_path / "frames.png").exists()
    with pytest.raises(InputError, match=r"nothing came for 0.05 s"):
        info("tcp://127.0.0.1:0", seconds=0.05)
    with pytest.raises(InputError, match="--seconds nan"):
        info("sim:7", seconds=float("nan"))
