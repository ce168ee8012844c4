"""npz: the layouts people have, exact times, wrong values with their row, damage as InputError, bounded memory."""

import io
import zipfile
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.events.npz import NpzReader
from saccade.types import InputError
from tests.make.events import assert_equal, collect, random_events

EVENTS = random_events(1000, width=64, height=48, start_us=3_000_000)
STATED = {"width": 64, "height": 48}
T, X, Y, P = EVENTS.t, EVENTS.x, EVENTS.y, EVENTS.p
TABLE = np.stack([T / 1e6, X, Y, P], 1)
FIELDS = np.zeros(1000, [("x", "<u2"), ("y", ">u2"), ("p", "i1"), ("t", "<i8")])
for name, column in (("t", T), ("x", X), ("y", Y), ("p", P)):
    FIELDS[name] = column


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    ("arrays", "noted"),
    [
        ({"t_us": T, "x": X, "y": Y, "p": P}, 0),
        ({"t": T, "x": X, "y": Y, "p": P, "time_unit": "us", "junk": np.zeros(3)}, 0),
        ({"ts": T, "xs": X, "ys": Y, "ps": P * 2 - 1}, 1),
        ({"timestamps": T / 1e6, "x": X.astype(float), "y": Y.astype(">i4"), "polarity": P.astype(float)}, 1),
        ({"timestamp_ns": T.astype(np.uint64) * 1000, "x": X, "y": Y, "pol": P.astype(np.int8)}, 0),
        ({"events/t_us": T, "events/x": X, "events/y": Y, "events/p": P, "width": np.array([70])}, 0),
        ({"events": TABLE}, 2),
        ({"events": TABLE[:, [1, 2, 0, 3]]}, 2),
        ({"arr_0": np.asfortranarray(TABLE)}, 2),
        ({"events": FIELDS, "labels": np.zeros((3, 2))}, 1),
        ({"arr_0": X, "arr_1": Y, "arr_2": T, "arr_3": P}, 2),
    ],
)
def test_layouts(tmp_path, save, arrays, noted):
    save(tmp_path / "a.npz", **arrays)
    with NpzReader(tmp_path / "a.npz", **STATED) as reader:
        assert_equal(collect(reader), EVENTS)
        assert len(reader.notes) == noted
        assert_equal(reader.between(3_020_000, 3_050_000), EVENTS[(T >= 3_020_000) & (T < 3_050_000)])


def test_the_sensor_is_stated_or_the_extent(tmp_path):
    columns = {"t_us": T, "x": X, "y": Y, "p": P}
    for stated, size, noted in (
        ({"width": 70, "height": 50}, (70, 50), 0),
        ({"sensor_size": np.array([70, 50])}, (70, 50), 1),
        ({}, (X.max() + 1, Y.max() + 1), 1),
    ):
        np.savez(tmp_path / "a.npz", **columns, **stated)
        with NpzReader(tmp_path / "a.npz") as reader:
            assert (reader.width, reader.height) == size
            assert len(reader.notes) == noted


def test_columns_by_option(tmp_path):
    np.savez(tmp_path / "a.npz", np.stack([Y, X, P, T, T], 1))
    with pytest.raises(InputError, match="5 columns without names"):
        NpzReader(tmp_path / "a.npz")
    with NpzReader(tmp_path / "a.npz", columns="y x p t _", time_unit="us", **STATED) as reader:
        assert_equal(collect(reader), EVENTS)
        assert not reader.notes
    with pytest.raises(InputError, match="use _"):
        NpzReader(tmp_path / "a.npz", columns="y x p t")


@given(st.lists(st.integers(-(10**17), 10**17), min_size=1), st.sampled_from(["us", "ns"]))
@settings(deadline=None)
def test_whole_times_convert_exactly(tmp_path_factory, times, unit):
    path = tmp_path_factory.getbasetemp() / "whole.npz"
    np.savez(path, t=np.array(times), x=np.zeros(len(times), np.uint8), y=np.zeros(len(times), np.uint8), p=np.ones(len(times), np.bool_))
    with NpzReader(path, time_unit=unit, **STATED) as reader:
        if unit == "ns":
            assert collect(reader).t.tolist() == [round(Fraction(time, 1000)) for time in times]
        elif max(map(abs, times)) < 10**17:
            assert collect(reader).t.tolist() == times


@pytest.mark.parametrize(
    ("column", "values", "found"),
    [
        ("t", np.array([1.0, np.nan, 3.0]), "t of event 1 is nan"),
        ("t", np.array([1.0, 2.0, np.inf]), "t of event 2 is inf"),
        ("t", np.array([1, 2, 2**63], np.uint64), "t of event 2 is 9223372036854775808"),
        ("t", np.array(["a", "b", "c"]), "expected numbers"),
        ("t", np.array([1, 2]), "differ in length"),
        ("x", np.array([1, -1, 3]), "x of event 1 is -1"),
        ("x", np.array([1, 2, 65536]), "x of event 2 is 65536"),
        ("y", np.array([1.0, 2.5, 3.0]), "y of event 1 is 2.5"),
        ("y", np.array([1.0, np.nan, 3.0]), "y of event 1 is nan"),
        ("p", np.array([0, 1, 2]), "p of event 2 is 2"),
        ("p", np.array([0, 1, -1]), "-1, 0 and 1"),
        ("p", np.array([0.0, 0.5, 1]), "p of event 1 is 0.5"),
        ("t", np.array([{}, 1, 2], object), "pickled"),
        ("t", np.zeros((3, 1)), "expected"),
    ],
)
def test_wrong_values_are_named_with_their_row(tmp_path, column, values, found):
    columns = {"t": np.array([1, 2, 3]), "x": np.array([1, 2, 3]), "y": np.array([1, 2, 3]), "p": np.array([0, 1, 1])} | {column: values}
    np.savez(tmp_path / "a.npz", **columns)
    for unit in ("us", "ns"):
        with pytest.raises(InputError) as error:
            collect(NpzReader(tmp_path / "a.npz", time_unit=unit))
        assert found in str(error.value)


def test_zero_and_one_event(tmp_path):
    for n in (0, 1):
        np.savez(tmp_path / "a.npz", t=T[:n], x=X[:n], y=Y[:n], p=P[:n], time_unit="us", width=64, height=48)
        with NpzReader(tmp_path / "a.npz") as reader:
            assert_equal(collect(reader), EVENTS[:n])
            assert reader.duration_us == n
    np.savez(tmp_path / "a.npz", t=T[:0], x=X[:0], y=Y[:0], p=P[:0])
    with pytest.raises(InputError, match="no events"):
        NpzReader(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"t": T},
        {"left/t": T, "right/t": T, "x": X, "y": Y, "p": P},
        {"a": TABLE, "b": TABLE},
        {"t": T, "ts": T, "x": X, "y": Y, "p": P},
    ],
)
def test_what_is_missing_is_said(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match="expected arrays t, x, y, p"):
        NpzReader(tmp_path / "a.npz")


def whole_file(save) -> bytes:
    buffer = io.BytesIO()
    save(buffer, t=T[:50], x=X[:50], y=Y[:50], p=P[:50], width=64, height=48)
    return buffer.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_cut_off_at_any_byte(tmp_path, save):
    whole = whole_file(save)
    path = tmp_path / "a.npz"
    for cut in range(0, len(whole), 3):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            NpzReader(path)


@given(
    save=st.sampled_from([np.savez, np.savez_compressed]),
    flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=5),
)
@settings(deadline=None, max_examples=300)
def test_damage_is_an_input_error(tmp_path_factory, save, flips):
    content = bytearray(whole_file(save))
    for place, value in flips:
        content[place % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content)
    with suppress(InputError), NpzReader(path) as reader:
        collect(reader)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file", b"PK\x05\x06" + bytes(18)])
def test_wrong_magic(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError):
        NpzReader(tmp_path / "a.npz")


def test_a_header_that_promises_more_than_there_is(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in "txyp":
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(InputError, match="damaged"):
        NpzReader(tmp_path / "a.npz")


def test_a_disk_too_small_to_unpack(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", t=T, x=X, y=Y, p=P)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100}))
    with pytest.raises(InputError, match="TMPDIR"):
        NpzReader(tmp_path / "a.npz")
