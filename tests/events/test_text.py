"""csv and txt: exact times, columns and units that are stated or inferred aloud, errors that name the line, bounded memory."""

import tracemalloc
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saccade.events.text import TextReader
from saccade.types import InputError
from tests.make.events import collect
from tests.make.text import open_text, text_file

SIZED = {"width": 64, "height": 48}
PLAIN = {"columns": "t x y p", "time_unit": "us", **SIZED}


def rows(reader) -> list[tuple[int, int, int, int]]:
    events = collect(reader)
    return [(int(t), int(x), int(y), int(p)) for t, x, y, p in zip(events.t, events.x, events.y, events.p, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("text")


decimals = st.one_of(
    st.decimals(-(10**10), 10**10, allow_nan=False, places=9),
    st.decimals(-(10**4), 10**4, allow_nan=False, places=30),
    st.decimals(-1, 1, allow_nan=False),
    st.integers(-(10**10), 10**10).map(Decimal),
)


@settings(deadline=None)
@given(
    times=st.lists(decimals, min_size=1, max_size=30), unit=st.sampled_from(["us", "ns", "ms", "s"]), style=st.sampled_from(["f", "e", "E"])
)
@example(
    times=[Decimal("0.0000005"), Decimal("0.0000015"), Decimal("-0.0000025"), Decimal("0.00000250000000000000000000001")],
    unit="s",
    style="f",
)
def test_times_are_the_decimal_rounded_half_to_even(folder, times, unit, style):
    text = "".join(f"{format(time, style)} 1 2 1\n" for time in times)
    exponent = {"us": 0, "ns": -3, "ms": 3, "s": 6}[unit]
    written = [Decimal(line.split()[0]) for line in text.splitlines()]
    expected = [int(Decimal(value).scaleb(exponent).quantize(Decimal(1), ROUND_HALF_EVEN)) for value in written]
    reader = open_text(folder, text, **{**PLAIN, "time_unit": unit})
    assert collect(reader).t.tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "t,x,y,p\n10,1,2,0\n20,3,4,1\n",
        "timestamp_us; x; y; polarity\n10; 1; 2; 0\n20; 3; 4; 1\n",
        "p,y,x,ts\r\n0,2,1,10\r\n1,4,3,20\r\n",
        "\ufefft,x,y,p\n10,1,2,-1\n20,3,4,1",
        "# comment\n\nx y t_ns pol\n1 2 10000 false\n3 4 20000 True\n\n% end\n",
        "#t x y p\n10\t1 2 0\n   20  3   4 +1   \n",
        "Time [ms],x,y,p\n0.01,1,2,0\n0.02,3,4,1\n",
        "t,x,y,p,temperature\n10,1,2,0,hot\n20,3.0,4.0,1.0,cold\n",
        "# saccade events: columns=y,x,p,t time_unit=ns width=64 height=48\n2,1,0,1e4\n4,3,1,2.0E+4\n",
    ],
)
def test_a_file_that_names_its_columns(folder, text):
    reader = open_text(folder, text, **SIZED)
    assert rows(reader) == [(10, 1, 2, 0), (20, 3, 4, 1)]


def test_names_without_a_unit_are_read_as_microseconds_aloud(folder):
    reader = open_text(folder, "t,x,y,p\n10,1,2,0\n20,3,4,1\n", **SIZED)
    assert [note for note in reader.notes if "time_unit='us'" in note]
    assert not open_text(folder, "t,x,y,p\n10,1,2,0\n20,3,4,1\n", time_unit="us", **SIZED).notes


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("t x y p", "0.000010 5 2 0\n0.000020 3 4 1\n0.000030 4 1 1\n"),
        ("x y p t", "5,2,0,100010\n3,4,1,100020\n4,1,1,100030\n"),
        ("x y t p", "5,2,10,-1\n3,4,20,1\n4,1,30,1\n"),
        ("t x y p", "1e-5 5.0 2.0 0.0\n2.0e-5 3.0 4.0 1.0\n3.0e-5 4.0 1.0 1.0\n"),
    ],
)
def test_columns_without_names_are_inferred_aloud_where_the_data_decide(folder, order, text):
    reader = open_text(folder, text, **SIZED)
    assert [(t % 100_000, x, y, p) for t, x, y, p in rows(reader)] == [(10, 5, 2, 0), (20, 3, 4, 1), (30, 4, 1, 1)]
    assert [note for note in reader.notes if f"columns='{order}'" in note]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("10 1 2 1\n20 3 4 1\n", "columns"),  # no column with both polarities
        ("10 1 0 1\n20 3 1 0\n30 2 0 0\n", "columns"),  # two with both
        ("10 1 2 1\n20 3 4 0\n", "columns"),  # three columns never decrease
        ("30 3 2 1\n20 1 4 0\n25 2 3 0\n", "columns"),  # none does
        ("10 1 2\n20 3 4\n", "columns"),
        ("10 1 2 1 7\n20 3 4 0 7\n", "columns"),
        ("a,b,c,d\n10,1,2,1\n", "columns"),
        ("t,x,y,p\n0.01,1,2,1\n0.02,1,2,1\n", "time_unit"),  # seconds or milliseconds
        ("t,x,y,p\n" + "".join(f"{1000 * i},1,2,1\n" for i in range(20)), "time_unit"),  # nanoseconds or coarse microseconds
        ("10,abc,2,1\n", "columns"),
    ],
)
def test_ambiguous_files_ask_for_the_option(folder, text, option):
    with pytest.raises(InputError, match=option):
        open_text(folder, text)


def test_options_win_and_skip(folder):
    assert rows(open_text(folder, "7 junk 1 2 3.5\n8 junk 0 4 4.5\n", columns="x,_,p y t", time_unit="ms", **SIZED)) == [
        (3500, 7, 2, 1),
        (4500, 8, 4, 0),
    ]
    reader = open_text(folder, "time x-coordinate y-coordinate on\n1 2 3 0\n", **PLAIN)
    assert rows(reader) == [(1, 2, 3, 0)]
    assert "header" in reader.notes[0]
    for wrong in ({"columns": "t x y"}, {"columns": "t x y p p"}, {"columns": "t x y p", "time_unit": "minutes"}):
        with pytest.raises(InputError, match="expected"):
            open_text(folder, "1 2 3 0\n", **wrong)


def test_the_sensor_is_stated_or_the_extent_with_a_note(folder):
    assert (reader := open_text(folder, "240 180\n0.000001 5 2 0\n0.000002 3 4 1\n0.000003 4 1 1\n")).width == 240
    assert reader.height == 180
    assert any("240 180" in note for note in reader.notes)
    reader = open_text(folder, "%geometry:640,480\nt_us,x,y,p\n1,2,3,0\n")
    assert (reader.width, reader.height, reader.notes) == (640, 480, [])
    for _ in range(2):  # the second time from the kept index
        reader = TextReader(text_file(folder, "t_us,x,y,p\n1,2,3,0\n1,7,1,0\n", "extent.csv"))
        assert (reader.width, reader.height) == (8, 4)
        assert "8 x 4" in reader.notes[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("nan,1,2,0", "t is 'nan'"),
        ("3,NaN,2,0", "x is 'NaN'"),
        ("3,inf,2,0", "x is 'inf'"),
        ("3,1,2,7", "p is '7'"),
        ("3,1,2,0.5", "p is '0.5'"),
        ("3,1,2,maybe", "p is 'maybe'"),
        ("3,1,2,xfalse", "p is 'xfalse'"),
        ("3,-1,2,0", "x is '-1'"),
        ("3,65536,2,0", "x is '65536'"),
        ("3,1.5,2,0", "x is '1.5'"),
        ("3,1,2", "3 fields, expected 4"),
        ("3,1,2,", "3 fields, expected 4"),
        ("3,1,2,0,", "more than 4 fields"),
        ("3,1,2,0 1", "more than 4 fields"),
        ("3,,2,0", "x is empty"),
        (",1,2,0", "t is empty"),
        ("1e17,1,2,0", "t is '1e17'"),
        ("99999999999999999999,1,2,0", "t is '99999999999999999999'"),
        ("1e99999999999999999999,1,2,0", "t is"),
        ("1e,1,2,0", "t is '1e'"),
        ("1e+-3,1,2,0", "t is"),
        ("--3,1,2,0", "t is '--3'"),
        ("1.2.3,1,2,0", "t is '1.2.3'"),
        ("0x10,1,2,0", "t is '0x10'"),
        ('"3","1","2","0"', "t is"),
        ("\x00\x01\x02", "t is"),
    ],
)
def test_a_wrong_line_is_named(folder, line, found):
    with pytest.raises(InputError, match="line 4: ") as error:
        collect(open_text(folder, f"# c\n1,1,1,1\n\n{line}\n5,1,1,1\n", **PLAIN))
    assert found in str(error.value)


def test_polarity_of_three_values_is_refused(folder):
    with pytest.raises(InputError, match="-1, 0 and 1"):
        collect(open_text(folder, "1,1,1,0\n2,1,1,-1\n3,1,1,1\n", **PLAIN))


def test_a_file_cut_off_anywhere_loses_only_its_last_line_and_says_so(folder):
    whole = "# saccade events: columns=t,x,y,p time_unit=us width=64 height=48\nt,x,y,p\n" + "".join(
        f"{1000 + i},{i},{i % 9},{i % 2}\n" for i in range(40)
    )
    expected = [(1000 + i, i, i % 9, i % 2) for i in range(40)]
    body = whole.index("1000")
    for cut in range(body, len(whole) + 1):
        reader = open_text(folder, whole[:cut])
        complete = whole[:cut].rstrip("\n").count("\n") - 1 - (not whole[: cut + 1].endswith("\n") and not whole[:cut].endswith("\n"))
        got = rows(reader)
        assert got == expected[: len(got)]
        assert len(got) >= complete
        assert len(got) == whole[:cut].count("\n") - 2 + (whole[cut : cut + 1] == "\n") or reader.notes
    for cut in range(body):
        with suppress(InputError):
            assert rows(open_text(folder, whole[:cut])) == []


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only a comment\n", b"t,x,y,p\n", b"\xef\xbb\xbf"])
def test_nothing_inside(folder, content):
    with pytest.raises(InputError):
        open_text(folder, content)


def test_zero_and_one_event(folder):
    assert rows(open_text(folder, "t,x,y,p\n", **SIZED)) == []
    reader = open_text(folder, "t,x,y,p\n7,1,2,1\n", **SIZED)
    assert (reader.count, reader.start_us, reader.end_us) == (1, 7, 8)


def test_events_outside_the_sensor_and_backward_times_are_kept(folder):
    assert rows(open_text(folder, "t,x,y,p\n9,100,2,1\n7,1,200,1\n", **SIZED)) == [(9, 100, 2, 1), (7, 1, 200, 1)]


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_garbage_is_an_input_error(folder, content):
    for options in ({}, PLAIN):
        with suppress(InputError):
            collect(open_text(folder, content, **options))


def test_a_line_without_end_is_refused_in_bounded_memory(folder):
    path = folder / "endless.csv"
    with path.open("wb") as file:
        file.write(b"t,x,y,p\n1,2,3,1\n")
        for _ in range(100):
            file.write(b"7" * (1 << 20))
    tracemalloc.start()
    with pytest.raises(InputError, match="line 3 is longer"):
        collect(TextReader(path, **SIZED))
    with pytest.raises(InputError, match="line 1 is longer"):
        TextReader(text_file(folder, b"7" * (1 << 21)))
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()
    path.unlink()


def test_random_access_over_many_blocks(folder, monkeypatch):
    monkeypatch.setattr("saccade.events.text.BLOCK", 1000)
    times = np.cumsum(np.random.default_rng(0).integers(0, 5, 3000))
    times[1500] = 3  # backwards: an index finds it all the same
    reader = open_text(folder, "".join(f"{t},{i % 60},{i % 40},{i % 2}\n" for i, t in enumerate(times)), **PLAIN)
    whole = collect(reader)
    assert whole.t.tolist() == times.tolist()
    assert reader.fraction == 1.0
    for start, end in ((0, 4), (1000, 1003), (5000, 5900), (-5, 10**9), (7, 7), *((t, t + 1) for t in range(0, int(times[-1]), 9))):
        expected = (times >= start) & (times < end)
        assert reader.between(start, end).x.tolist() == whole.x[expected].tolist()
    text = "1,1,1,1\n" * 2000 + "1,1,1,x\n" + "1,1,1,1\n" * 50
    with pytest.raises(InputError, match="line 2001: "):
        collect(open_text(folder, text, **PLAIN))


def test_nothing_is_assumed_silently_where_the_only_event_is_the_last_line_or_far_away(folder):
    with pytest.raises(InputError, match="columns"):
        open_text(folder, "# c\n10 1 2 1", **SIZED)
    with pytest.raises(InputError, match="no event in the first"):
        open_text(folder, ("# " + "c" * 1021 + "\n") * (1 << 11) + "10 1 2 1\n", **SIZED)
