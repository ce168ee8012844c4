"""DAT and RAW: what is encoded is decoded, real twins agree, and damage is told."""

import lzma
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.events.evt import START, WORD, Decoder
from saccade.events.prophesee import DatReader, RawReader
from saccade.types import Events, InputError
from tests.make.events import assert_equal, collect, events, random_events
from tests.make.prophesee import ENCODERS, evt3, evt21, header, write_dat, write_raw

in_tmp = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)


@pytest.mark.parametrize("encoding", ENCODERS)
@given(data=st.data())
@in_tmp
def test_raw_decodes_what_was_encoded(encoding: str, tmp_path: Path, data: st.DataObject) -> None:
    expected = data.draw(events(latest_us=40_000_000))
    with RawReader(write_raw(tmp_path / "a.raw", expected, encoding)) as reader:
        assert_equal(collect(reader), _after_first_lap(expected, encoding))


def test_a_few_words_of_evt21_are_read_in_the_right_order(tmp_path: Path) -> None:
    """The mask of an event in column 31 looks like a word of time, if one takes the halves in the other order."""
    expected = Events(np.zeros(2, np.int64), np.full(2, 31, np.uint16), np.zeros(2, np.uint16), np.zeros(2, np.bool_), 40, 30)
    with RawReader(write_raw(tmp_path / "a.raw", expected, "EVT2.1")) as reader:
        assert_equal(collect(reader), expected)


def _after_first_lap(expected: Events, encoding: str) -> Events:
    """A file can't say how often its clock had run round before it began, nor how often during a silence of many laps."""
    lap_us = {"EVT3": 1 << 24, "EVT2": 1 << 34, "EVT2.1": 1 << 34}[encoding]
    t, laps = expected.t % lap_us, 0
    for i in range(1, len(t)):
        previous, now = int(expected.t[i - 1] % lap_us), int(expected.t[i] % lap_us)
        step = lap_us >> 12 if encoding == "EVT3" else 64
        laps += previous // step - now // step > lap_us // step // 2
        t[i] += laps * lap_us
    return Events(t, expected.x, expected.y, expected.p, expected.width, expected.height)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_decoding_can_stop_and_go_on_at_any_word(encoding: str) -> None:
    source = random_events(300, width=1280, height=720, span_us=20_000)
    words = np.frombuffer(ENCODERS[encoding](source), WORD[encoding])
    whole = Decoder(encoding).decode(words)
    for cut in range(0, len(words), 7):
        first = Decoder(encoding)
        head = first.decode(words[:cut])
        tail = Decoder(encoding, first.state).decode(words[cut:])
        for got_head, got_tail, expected in zip(head, tail, whole, strict=True):
            np.testing.assert_array_equal(np.concatenate([got_head, got_tail]), expected)


def test_evt3_clock_runs_round_every_16_seconds() -> None:
    times = np.arange(0, 60_000_000, 997_331)
    zeros = np.zeros(len(times), np.uint16)
    source = Events(times, zeros, zeros, zeros.astype(bool), 4, 4)
    t, *_ = Decoder("EVT3").decode(np.frombuffer(evt3(source), "<u2"))
    np.testing.assert_array_equal(t, times)


def test_evt3_skips_what_vendors_add_and_counts_what_nobody_defines(tmp_path: Path) -> None:
    words = [0x8001, 0x6002, 0x0003, 0x2804, 0x7ABC, 0xA001, 0x9FFF, 0xE123, 0xF456, 0x2005, 0xB000, 0x1000]
    path = tmp_path / "a.raw"
    path.write_bytes(b"% evt 3.0\n% geometry 640x480\n% end\n" + np.array(words, "<u2").tobytes())
    with RawReader(path) as reader:
        got = collect(reader)
        assert got.x.tolist() == [4, 5]
        assert got.p.tolist() == [True, False]
        assert got.t.tolist() == [0x1002, 0x1002]
        assert any(re.search("2 words of a kind", note) for note in reader.notes)


def test_evt3_vectors() -> None:
    words = [0x8000, 0x6000, 0x0007, 0x3800 | 100, 0x4000 | 0b100000000001, 0x4000 | 0b10, 0x5000 | 0b10000001, 0x5000]
    _, x, y, p = Decoder("EVT3").decode(np.array(words, "<u2"))
    assert x.tolist() == [100, 111, 113, 124, 131]
    assert set(y.tolist()) == {7}
    assert p.all()


def test_evt3_columns_of_a_long_run_of_vectors_never_wrap(tmp_path: Path) -> None:
    """After 65,536 columns x would come back as 0: such events are counted, wherever the decoder stops, until a word sets the column."""
    for kind, lanes in ((0x4000, 12), (0x5000, 8)):
        vectors = (1 << 16) // lanes + 50
        words = np.array([0x8000, 0x6000, 0x0007, 0x3000, *[kind | 1] * vectors, 0x3000 | 5, kind | 1], "<u2")
        path = tmp_path / "a.raw"
        path.write_bytes(b"% evt 3.0\n% geometry 640x480\n% end\n" + words.tobytes())
        with RawReader(path) as reader:
            x = collect(reader).x.astype(int)
            placed = len(x) - 1
            assert x.tolist() == [*range(0, placed * lanes, lanes), 5]
            assert placed * lanes > (1 << 16) - 2 * 12
            assert f"{vectors - placed} events without a known time, row or column are left out" in reader.notes
        decoder = Decoder("EVT3")
        parts = [decoder.decode(part)[1] for part in np.array_split(words, 17)]
        np.testing.assert_array_equal(np.concatenate(parts), x)


def test_events_that_no_word_has_placed_are_counted_not_invented(tmp_path: Path) -> None:
    """A camera that was switched on in the middle: events come before the first time, row or vector base."""
    words = [0x2001, 0x8001, 0x6000, 0x2002, 0x0001, 0x4003, 0x2003]
    path = tmp_path / "a.raw"
    path.write_bytes(b"% evt 3.0\n% geometry 640x480\n% end\n" + np.array(words, "<u2").tobytes())
    with RawReader(path) as reader:
        assert collect(reader).x.tolist() == [3]
        assert reader.notes == ["4 events without a known time, row or column are left out"]


def test_evt21_in_either_order_of_halves(tmp_path: Path) -> None:
    source = random_events(500, width=1280, height=720, span_us=20_000)
    for stated in ("", "% format EVT21;endianness=legacy;height=720;width=1280\n"):
        path = tmp_path / "a.raw"
        path.write_bytes(b"% evt 2.1\n% geometry 1280x720\n" + stated.encode() + b"% end\n" + evt21(source, legacy=True))
        with RawReader(path) as reader:
            assert_equal(collect(reader), source)


def unpack(shared: Path, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(lzma.decompress((shared / "data" / "prophesee" / f"{name}.xz").read_bytes()))
    return path


def test_twins_of_a_real_recording_are_equal(shared: Path, tmp_path: Path) -> None:
    for name in ("imx636_10.8s_evt3.raw", "imx636_10.8s.dat"):
        unpack(shared, tmp_path, name)
    with RawReader(tmp_path / "imx636_10.8s_evt3.raw") as raw, DatReader(tmp_path / "imx636_10.8s.dat") as dat:
        one, other = collect(raw), collect(dat)
        assert len(one) == raw.count == dat.count == 1_218_618
        np.testing.assert_array_equal(one.t - one.t[0], other.t - other.t[0])
        for name in "xyp":
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        middle = raw.start_us + raw.duration_us // 2
        got, expected = raw.between(middle, middle + 50_000), one[(one.t >= middle) & (one.t < middle + 50_000)]
        assert_equal(got, expected)


@pytest.mark.parametrize("name", ["driving_1mpx_8.8ms_evt3.raw", "imx636_10.8s_evt3.raw"])
def test_evt3_equals_an_independent_decoder(shared: Path, tmp_path: Path, name: str) -> None:
    evt3_package = pytest.importorskip("evt3")
    path = shared / "data" / "prophesee" / name
    if not path.exists():
        path = unpack(shared, tmp_path, name)
    theirs = evt3_package.decode_file(str(path))
    with RawReader(path) as reader:
        ours = collect(reader)
    np.testing.assert_array_equal(ours.t, np.asarray(theirs.timestamp))
    np.testing.assert_array_equal(ours.x, np.asarray(theirs.x))
    np.testing.assert_array_equal(ours.y, np.asarray(theirs.y))
    np.testing.assert_array_equal(ours.p, np.asarray(theirs.polarity) > 0)


def test_real_evt2_equals_a_plain_decoder(shared: Path) -> None:
    path = shared / "data" / "prophesee" / "gen3_vga_grass_96ms_evt2.raw"
    data = path.read_bytes()
    words = np.frombuffer(data[data.index(b"evt 2.0\n") + 8 :], "<u4").astype(np.int64)
    kind = words >> 28
    high = np.maximum.accumulate(np.where(kind == 8, np.arange(len(words)), 0))
    times = ((words[high] & 0xFFFFFFF) << 6) + (words >> 22 & 0x3F)
    is_event = kind <= 1
    with RawReader(path) as reader:
        ours = collect(reader)
        assert (reader.width, reader.height, len(ours)) == (640, 480, 521_252)
    np.testing.assert_array_equal(ours.t, times[is_event])
    np.testing.assert_array_equal(ours.x, (words >> 11 & 0x7FF)[is_event])
    np.testing.assert_array_equal(ours.y, (words & 0x7FF)[is_event])
    np.testing.assert_array_equal(ours.p, kind[is_event] == 1)


@pytest.mark.parametrize("kind", [0, 12])
@given(source=events(latest_us=1 << 31))
@in_tmp
def test_dat_decodes_what_was_encoded(kind: int, tmp_path: Path, source: Events) -> None:
    with DatReader(write_dat(tmp_path / "a.dat", source, kind)) as reader:
        assert_equal(collect(reader), source)


def test_dat_clock_runs_round_after_71_minutes(tmp_path: Path) -> None:
    times = np.arange(5_000, 5_000 + 3 * (1 << 32), 9_000_001)
    zeros = np.zeros(len(times), np.uint16)
    source = Events(times, zeros, zeros, zeros.astype(bool), 4, 4)
    with DatReader(write_dat(tmp_path / "a.dat", source)) as reader:
        assert_equal(collect(reader), source)
        assert reader.end_us == times[-1] + 1
        for i in (0, 400, 1000, len(times) - 1):
            assert reader.between(times[i], times[i] + 1).t.tolist() == [times[i]]


def test_dat_clock_runs_round_during_a_long_silence(tmp_path: Path) -> None:
    """A burst, then a few events in two hours, then a burst: evenly spaced probes would see only the bursts."""
    burst = np.arange(5_000)
    times = np.concatenate([burst, np.arange(1, 8) * 1_000_000_000, 7_200_000_000 + burst])
    zeros = np.zeros(len(times), np.uint16)
    source = Events(times, zeros, zeros, zeros.astype(bool), 4, 4)
    with DatReader(write_dat(tmp_path / "a.dat", source)) as reader:
        assert_equal(collect(reader), source)


def test_dat_of_the_real_clip(shared: Path) -> None:
    path = shared / "data" / "gen1" / "clip_td.dat"
    records = np.frombuffer(path.read_bytes().split(b"% Width 304\n", 1)[1][2:], "<u4").reshape(-1, 2)
    with DatReader(path) as reader:
        ours = collect(reader)
        assert (reader.width, reader.height, reader.count) == (304, 240, 1_649_148)
        assert (reader.start_us, reader.end_us) == (20_520_003, 21_759_995)
        piece = reader.between(21_000_000, 21_100_000)
    np.testing.assert_array_equal(ours.t, records[:, 0])
    np.testing.assert_array_equal(ours.x, records[:, 1] & 0x3FFF)
    np.testing.assert_array_equal(ours.y, records[:, 1] >> 14 & 0x3FFF)
    np.testing.assert_array_equal(ours.p, records[:, 1] >> 28)
    assert_equal(piece, ours[(ours.t >= 21_000_000) & (ours.t < 21_100_000)])


def test_dat_says_where_time_runs_backwards(tmp_path: Path) -> None:
    source = random_events(100)
    t = source.t.copy()
    t[50] = t[90]
    path = write_dat(tmp_path / "a.dat", Events(t, source.x, source.y, source.p, 304, 240))
    with DatReader(path) as reader:
        for last in (20, 60, 80, 99):
            with pytest.raises(InputError, match=r"backwards .*--sort"):
                reader.between(t[10], t[last])


def test_dat_without_a_stated_sensor_takes_the_extent_and_says_so(tmp_path: Path) -> None:
    path = write_dat(tmp_path / "a.dat", random_events(100), lines="% Version 2\n")
    with DatReader(path) as reader:
        assert (reader.width, reader.height) == (int(collect(reader).x.max()) + 1, int(collect(reader).y.max()) + 1)
        assert "doesn't state the sensor" in reader.notes[0]
    with DatReader(path, width=304, height=240) as reader:
        assert (reader.width, reader.height, reader.notes) == (304, 240, [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"% Version 2\n\x0c", "no DAT file"),
        (b"% Version 2\n\x0e\x08", "event type 14"),
        (b"% Version 2\n\x0c\x10", "16 bytes an event"),
        (b"% Version 1\n\x0c\x08", "DAT version 1"),
        (b"% Version 2", "never ends"),
    ],
)
def test_bad_dat(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.dat").write_bytes(content)
    with pytest.raises(InputError, match=message):
        DatReader(tmp_path / "a.dat")


def test_raw_of_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(b"% evt 4.0\n")
    with pytest.raises(InputError, match=r"encoding 'EVT4.0'; expected EVT2, EVT2.1 or EVT3"):
        RawReader(tmp_path / "a.raw")


@pytest.mark.parametrize("encoding", ["DAT", *ENCODERS])
def test_cut_off_at_any_byte(tmp_path: Path, encoding: str) -> None:
    """InputError, or all events before the cut and, where a word was cut in two, a note."""
    source = random_events(40, width=64, height=48, span_us=9_000)
    path = tmp_path / "a.bin"
    make = write_dat if encoding == "DAT" else write_raw
    whole = make(path, source, *(() if encoding == "DAT" else (encoding,))).read_bytes()
    start = len(whole) - (len(source) * 8 if encoding == "DAT" else len(ENCODERS[encoding](source)))
    size = 8 if encoding == "DAT" else WORD[encoding].itemsize
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            with DatReader(path) if encoding == "DAT" else RawReader(path) as reader:
                got = collect(reader)
                notes = reader.notes
        except InputError:
            assert length < start
            continue
        assert_equal(Events(got.t, got.x, got.y, got.p, 64, 48), source[: len(got)])
        assert any("cut off" in note for note in notes) == bool((length - start) % size) or length < start


def test_state_of_a_new_decoder_is_the_start() -> None:
    assert Decoder("EVT3").state == START
    with pytest.raises(InputError, match="expected one of EVT2"):
        Decoder("EVT4")
    assert header("EVT3", random_events(1)).startswith(b"% evt 3.0")


@pytest.mark.parametrize("stated", ["geometry 0x0", "geometry 0x720", "format EVT3;width=0;height=0", "width 0\n% height 0"])
def test_a_stated_size_of_nothing_is_no_size(stated: str, tmp_path: Path) -> None:
    """It is inferred from the events, as if the header said nothing."""
    source = random_events(500, width=64, height=48)
    path = tmp_path / "a.raw"
    path.write_bytes(f"% evt 3.0\n% {stated}\n% end\n".encode() + ENCODERS["EVT3"](source))
    with RawReader(path) as reader:
        assert (reader.width, reader.height) == (int(source.x.max()) + 1, int(source.y.max()) + 1)
        assert_equal(collect(reader), source)
