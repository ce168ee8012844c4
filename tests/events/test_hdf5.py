"""HDF5: every layout reads equal, what isn't stated is noted, times are found with and without DSEC's table, damage is told."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.events import ecf
from saccade.events.hdf5 import Hdf5Reader
from saccade.events.open import open_events
from saccade.types import Events, InputError
from tests.make.events import assert_equal, collect, events, random_events
from tests.make.hdf5 import encode_ecf, records, write, write_prophesee, write_rvt, write_seconds

SOURCE = random_events(5003, width=346, height=260, start_us=7_000_000)
LAYOUTS: dict[str, Callable[[Path, Events], None]] = {
    "DSEC": write,
    "DSEC without table": lambda path, source: write(path, source, ms_to_idx=False),
    "DSEC contiguous": lambda path, source: write(path, source, blosc=False, chunk=0),
    "RVT": write_rvt,
    "seconds": write_seconds,
    "Prophesee": lambda path, source: write_prophesee(path, source, ecf=False),
    "ECF runs": write_prophesee,
    "ECF x and p packed": lambda path, source: write_prophesee(path, source, packing=1),
    "ECF all packed": lambda path, source: write_prophesee(path, source, packing=2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_random_access(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    LAYOUTS[layout](path, SOURCE)
    with Hdf5Reader(path) as reader:
        assert_equal(collect(reader), SOURCE)
        assert (reader.count, reader.start_us, reader.end_us) == (len(SOURCE), SOURCE.t[0], SOURCE.t[-1] + 1)
        for start, end in ((0, 1), (7_000_000, 7_000_001), (7_010_123, 7_030_000), (7_099_990, 8_000_000), (8_000_000, 9_000_000)):
            assert_equal(reader.between(start, end), SOURCE[(SOURCE.t >= start) & (SOURCE.t < end)])
        assert bool(reader.notes) == (layout == "seconds")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_event(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    LAYOUTS[layout](path, SOURCE[:1])
    with Hdf5Reader(path) as reader:
        assert_equal(collect(reader), SOURCE[:1])
        assert reader.duration_us == 1


@pytest.mark.parametrize("layout", ["DSEC", "DSEC contiguous", "RVT", "seconds", "Prophesee"])
def test_no_events(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    LAYOUTS[layout](path, SOURCE[:0])
    with Hdf5Reader(path) as reader:
        assert (reader.count, reader.duration_us, len(reader.between(0, 10))) == (0, 0, 0)


@given(source=events(width=2048, height=2048, latest_us=10**9), packing=st.integers(0, 2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_ecf_decodes_what_was_encoded(source: Events, packing: int) -> None:
    if len(source) == 0:
        return
    data = encode_ecf(records(source), packing)
    for got, name in zip(ecf.decode_chunk(data), "txyp", strict=True):
        np.testing.assert_array_equal(got, getattr(source, name))
    for cut in range(0, len(data), 7):
        try:
            ecf.decode_chunk(data[:cut])
        except InputError:
            continue
        raise AssertionError(f"{cut} of {len(data)} bytes were taken for whole")


def test_long_runs_of_ecf() -> None:
    """Counts that don't fit into their few bits follow as 16 bits."""
    source = Events(np.repeat([5, 5_000_000_000], 300), np.full(600, 9, np.uint16), np.full(600, 8, np.uint16), np.ones(600, bool), 10, 10)
    for got, name in zip(ecf.decode_chunk(encode_ecf(records(source), 0)), "txyp", strict=True):
        np.testing.assert_array_equal(got, getattr(source, name))


def test_a_chunk_that_ecf_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_prophesee(path, SOURCE[:2000])
    with h5py.File(path, "r+") as file:
        file["CD/events"].id.write_direct_chunk((1000,), records(SOURCE[1000:2000]).tobytes(), filter_mask=1)
    with Hdf5Reader(path) as reader:
        assert_equal(collect(reader), SOURCE[:2000])


def test_a_wrong_table_of_milliseconds_falls_back_to_bisection(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for wrong in (
        lambda table: table[::-1],
        lambda table: table // 2,
        lambda table: table + 50,
        lambda table: table * 0,
        lambda table: table + 10**12,
    ):
        write(path, SOURCE)
        with h5py.File(path, "r+") as file:
            table = wrong(file["ms_to_idx"][:])
            del file["ms_to_idx"]
            file["ms_to_idx"] = table
        with Hdf5Reader(path) as reader:
            for start in range(7_000_000, 7_110_000, 1777):
                assert_equal(reader.between(start, start + 900), SOURCE[(SOURCE.t >= start) & (SOURCE.t < start + 900)])


def test_the_sensor_is_stated_known_or_inferred(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, SOURCE, size=False)
    with Hdf5Reader(path) as reader:
        assert (reader.width, reader.height) == (640, 480)
        assert "DSEC" in reader.notes[0]
    with Hdf5Reader(path, width=346, height=260) as reader:
        assert (reader.width, reader.height) == (346, 260)
    write(path, SOURCE, size=False, ms_to_idx=False)
    with Hdf5Reader(path) as reader:
        assert (reader.width, reader.height) == (int(SOURCE.x.max()) + 1, int(SOURCE.y.max()) + 1)
        assert "extent of the events" in reader.notes[0]


@pytest.mark.parametrize(("unit", "scale"), [("ns", 1000.0), ("us", 1.0), ("ms", 0.001), ("seconds", 1e-6)])
def test_the_unit_of_time_is_stated_by_attribute_or_option(unit: str, scale: float, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, values in {"x": SOURCE.x, "y": SOURCE.y, "p": SOURCE.p, "t": SOURCE.t * scale}.items():
            file[name] = values.astype(np.int64) if unit == "ns" and name == "t" else values
        file["t"].attrs["unit"] = unit
        file.attrs["width"], file.attrs["height"] = 346, 260
    with Hdf5Reader(path) as reader:
        assert_equal(collect(reader), SOURCE)
        assert reader.notes == []
    with h5py.File(path, "r+") as file:
        del file["t"].attrs["unit"]
    with Hdf5Reader(path) as reader:
        assert any("unit" in note for note in reader.notes)
    with Hdf5Reader(path, time_unit="s" if unit == "seconds" else unit) as reader:
        assert_equal(collect(reader), SOURCE)


def test_time_backwards_comes_as_stored_and_stops_a_look_up(tmp_path: Path) -> None:
    odd = Events(
        np.array([30, 10, 20]), np.array([400, 65_535, 3], np.uint16), np.array([0, 1, 999], np.uint16), np.ones(3, bool), 346, 260
    )
    write_rvt(tmp_path / "a.h5", odd)
    with Hdf5Reader(tmp_path / "a.h5") as reader:
        assert_equal(collect(reader), odd)
        with pytest.raises(InputError, match="time runs backwards"):
            reader.between(5, 25)


def test_what_is_wrong_with_the_layout_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    x, t = np.arange(5, dtype=np.uint16), np.arange(5)

    def refused(message: str, **columns: np.ndarray) -> None:
        with h5py.File(path, "w") as file:
            for name, values in columns.items():
                file[f"events/{name}"] = values
        with pytest.raises(InputError, match=message) as caught, Hdf5Reader(path) as reader:
            collect(reader)
        assert str(path) in str(caught.value)

    refused("no events found.*found events", x=x, y=x, t=t)
    refused("has 4 values, /events/t has 5", x=x[:4], y=x, t=t, p=x)
    refused("expected an integer", x=x.astype(float), y=x, t=t, p=x)
    refused("expected a number", x=x, y=x, t=np.array([b"a"] * 5), p=x)
    refused("shape", x=x[None], y=x[None], t=t[None], p=x[None])
    refused("lies between -1 and 3", x=x.astype(np.int32) - 1, y=x, t=t, p=x)
    refused("NaN", x=x, y=x, t=np.array([0, 1, np.nan, 3, 4]), p=x)
    refused("can't be microseconds", x=x, y=x, t=t + 2**60, p=x)
    with h5py.File(path, "w") as file:
        for name in "txyp":
            file.create_dataset(f"events/{name}", (10**15,), np.uint16, chunks=(1000,))
    with pytest.raises(InputError, match=r"0 of 1000000000000 chunks; the recording wasn't finished"):
        Hdf5Reader(path)


def test_an_unknown_filter_and_a_damaged_chunk_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, SOURCE)
    with h5py.File(path, "r+") as file:
        file["events/x"].id.write_direct_chunk((1000,), b"damaged" * 20)
    with pytest.raises(InputError, match=r"a\.h5"), Hdf5Reader(path) as reader:
        collect(reader)
    path.write_bytes(path.read_bytes().replace((32001).to_bytes(2, "little"), (31999).to_bytes(2, "little")))
    with pytest.raises(InputError, match="filter"), Hdf5Reader(path) as reader:
        collect(reader)


@pytest.mark.parametrize("apart", [499, pytest.param(61, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("layout", ["DSEC", "DSEC contiguous", "ECF runs"])
def test_cut_at_any_byte(layout: str, apart: int, tmp_path: Path) -> None:
    """HDF5 states the file's length at its beginning, so nothing of a cut file is read; its columns would end at different events."""
    path = tmp_path / "a.h5"
    LAYOUTS[layout](path, SOURCE[:20])
    data = path.read_bytes()
    path = tmp_path / "cut.h5"
    for size in {*range(0, len(data), apart), *range(0, 200, max(1, apart // 61)), len(data) - 1}:
        path.write_bytes(data[:size])
        with pytest.raises(InputError, match=r"cut\.h5"):
            Hdf5Reader(path)


def test_a_heap_that_would_hang_hdf5_is_refused(tmp_path: Path) -> None:
    """Found by fuzzing: the length of the text "346x260" grown by 16 sends HDF5 2.0 into an endless loop."""
    path = tmp_path / "a.h5"
    write_prophesee(path, SOURCE[:100])
    data = path.read_bytes()
    at = data.index(b"346x260") - 8
    assert data[at] == 7
    path.write_bytes(data[:at] + bytes([7 + 16]) + data[at + 1 :])
    with pytest.raises(InputError, match="heap of texts is damaged"):
        Hdf5Reader(path)


@pytest.mark.parametrize("suffix", ["h5", "npz", "csv"])
@pytest.mark.parametrize(("values", "found"), [
    ([0, 1, 7, 1], "7"), ([0.0, np.nan, 1.0, 1.0], "nan"), ([0, 1, -2, 1], "-2"), ([0, 0.5, 1, 1], "0.5"), ([0, 1, 255, 1], "255"),
    ([-1, 1, 1, 0], "-1, 0 and 1"), ([0, 1, 1, 0], None), ([-1, 1, 1, -1], None), ([False, True, True, False], None),
    ([-1.0, 1.0, 1.0, -1.0], None), ([0.0, 1.0, 1.0, 0.0], None),
])  # fmt: skip
def test_one_rule_for_polarities_in_every_format(suffix: str, values: list[float], found: str | None, tmp_path: Path) -> None:
    path, columns = tmp_path / f"a.{suffix}", {"t": np.arange(4), "x": np.arange(4), "y": np.arange(4), "p": np.array(values)}
    if suffix == "h5":
        with h5py.File(path, "w") as file:
            for name, column in columns.items():
                file[f"events/{name}"] = column.astype(np.uint8) if found == "255" else column
    elif suffix == "npz":
        np.savez(path, **columns)
    else:
        path.write_text("t,x,y,p\n" + "".join(f"{i},{i},{i},{p}\n" for i, p in enumerate(values)))
    if found is None:
        with open_events(path, width=4, height=4, time_unit="us") as reader:
            assert collect(reader).p.tolist() == [False, True, True, False]
    else:
        with pytest.raises(InputError, match=rf"a\.{suffix}.*{found}.*[;,] expected 0 and 1, .*write the polarities as 0 and 1"):
            collect(open_events(path, width=4, height=4, time_unit="us"))
