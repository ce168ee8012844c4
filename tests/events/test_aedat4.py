"""AEDAT4: real packets agree with the `aedat` package, every compression decodes, cut recordings yield what is whole."""

import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from saccade.events.aedat4 import Aedat4Reader, FlatBuffer
from saccade.events.compression import decompress
from saccade.types import Events, InputError
from tests.make.aedat4 import COMPRESS, event_packet, write
from tests.make.events import assert_equal, collect, random_events

SOURCE = random_events(350, width=346, height=260, start_us=1_589_163_005_536_052)


def test_real_recording_equals_the_aedat_package(shared: Path) -> None:
    aedat = pytest.importorskip("aedat")
    path = shared / "data" / "davis346_cars" / "cars.aedat4"
    oracle = np.concatenate([packet["events"] for packet in aedat.Decoder(path) if "events" in packet])
    with Aedat4Reader(path) as reader:
        got = collect(reader)
        assert (len(got), reader.count, reader.width, reader.height, reader.notes) == (78_830, 78_830, 346, 260, [])
        for name, theirs in zip("txyp", ("t", "x", "y", "on"), strict=True):
            np.testing.assert_array_equal(getattr(got, name), oracle[theirs])
        middle = (reader.start_us + reader.end_us) // 2
        assert_equal(reader.between(middle, middle + 50_000), got[(got.t >= middle) & (got.t < middle + 50_000)])


@pytest.mark.parametrize("compression", COMPRESS)
def test_every_compression(compression: int, tmp_path: Path) -> None:
    aedat = pytest.importorskip("aedat")
    path = write(tmp_path / "a.aedat4", SOURCE, compression=compression, streams=("EVTS",))
    with Aedat4Reader(path) as reader:
        assert_equal(collect(reader), SOURCE)
        assert reader.notes == []
    oracle = np.concatenate([packet["events"] for packet in aedat.Decoder(path)])
    np.testing.assert_array_equal(oracle["t"], SOURCE.t)  # the sample itself is valid


def test_random_access_needs_only_the_packets_in_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.events.aedat4.ENOUGH", 100)
    with Aedat4Reader(write(tmp_path / "a.aedat4", SOURCE, packet=30)) as reader:
        for start, end in ((0, 1), (10_000, 30_000), (99_000, 200_000), (0, 10**9)):
            begin, finish = SOURCE.t[0] + start, SOURCE.t[0] + end
            assert_equal(reader.between(begin, finish), SOURCE[(SOURCE.t >= begin) & (SOURCE.t < finish)])
        assert len(reader.index.marks) == 3  # 120, 120 and 110 events


def test_the_first_of_several_event_streams_is_read_and_noted(tmp_path: Path) -> None:
    with Aedat4Reader(write(tmp_path / "a.aedat4", SOURCE, streams=("IMUS", "EVTS", "EVTS"))) as reader:
        assert len(collect(reader)) == len(SOURCE)
        assert reader.notes == ["event streams 1, 2; reading 1, the first"]


def test_a_sensor_that_is_not_stated_is_inferred_with_a_note(tmp_path: Path) -> None:
    with Aedat4Reader(write(tmp_path / "a.aedat4", SOURCE, size=False)) as reader:
        assert (reader.width, reader.height) == (int(SOURCE.x.max()) + 1, int(SOURCE.y.max()) + 1)
        assert "doesn't state the sensor" in reader.notes[0]


@pytest.mark.parametrize("table", [True, False])
def test_cut_at_any_byte(table: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # thousands of notes
    small = SOURCE[:30]
    data = write(tmp_path / "whole.aedat4", small, packet=10, table=table).read_bytes()
    path = tmp_path / "cut.aedat4"
    seen = set()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        try:
            with Aedat4Reader(path) as reader:
                got = collect(reader)
        except InputError:
            continue
        assert_equal(got, small[: len(got)])
        assert reader.notes or len(got) == len(small)  # in the table of packets no event is lost
        seen.add(len(got))
    assert seen == {0, 10, 20, 30} if table else {0, 10, 20}


@pytest.mark.parametrize("table", [True, False])
def test_no_events_and_one_event(table: bool, tmp_path: Path) -> None:
    for count in (0, 1):
        with Aedat4Reader(write(tmp_path / "a.aedat4", SOURCE[:count], table=table)) as reader:
            assert_equal(collect(reader), SOURCE[:count])
            assert (reader.count, reader.duration_us) == (count, count)


def test_events_outside_the_sensor_and_out_of_order_come_as_stored(tmp_path: Path) -> None:
    odd = Events(
        np.array([30, 10, 20]), np.array([400, 65_535, 3], np.uint16), np.array([0, 1, 999], np.uint16), np.ones(3, bool), 346, 260
    )
    with Aedat4Reader(write(tmp_path / "a.aedat4", odd)) as reader:
        assert_equal(collect(reader), odd)
        assert_equal(reader.between(10, 25), odd[1:])


def test_what_is_not_aedat4_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.aedat4"
    whole = write(path, SOURCE).read_bytes()
    first_packet = 18 + int.from_bytes(whole[14:18], "little")
    wrong = {
        "begins with": b"#!AER-DAT3.1\r\n" + whole[14:],
        "ends inside its header": whole[:14] + b"\xff\xff\xff\x7f" + whole[18:],
        "header is damaged": whole.replace(b"IOHE", b"IOHX"),
        "declarations": whole.replace(b"<dv vers", b"<!dv ver"),
        "no stream of events": whole.replace(b">EVTS<", b">FRME<"),
        "states -1 bytes": whole[:first_packet] + struct.pack("<ii", 1, -1) + whole[first_packet + 8 :],
        "can't be decoded": whole.replace(b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x19"),  # the frames' magic
    }
    for message, data in wrong.items():
        path.write_bytes(data)
        with pytest.raises(InputError, match=message) as caught, Aedat4Reader(path) as reader:
            collect(reader)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("method", ["lz4", "zstd", "bz2"])
def test_a_few_bytes_do_not_fill_the_memory(method: str) -> None:
    import bz2

    import lz4.frame
    import zstandard

    bomb = {"lz4": lz4.frame.compress, "zstd": zstandard.compress, "bz2": bz2.compress}[method](bytes(1 << 22))
    assert decompress(method, bomb) == bytes(1 << 22)
    with pytest.raises(InputError, match="larger than 1 MB"):
        decompress(method, bomb, 1 << 20)
    with pytest.raises(InputError):
        decompress(method, bomb[:-9])


def test_damaged_offsets_never_leave_the_buffer() -> None:
    packet = event_packet(SOURCE[:3])
    for at in range(len(packet) - 48):
        for value in (0, 1, 127, 128, 255):
            with suppress(InputError):
                FlatBuffer(packet[:at] + bytes([value]) + packet[at + 1 :], b"EVTS").structs(0, np.dtype("V16"))
