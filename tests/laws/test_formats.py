"""Laws of every format: what was written is read, any piece equals the same piece of the whole, damage gives InputError or a prefix."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saccade.events.open import open_events
from saccade.events.reader import IndexedReader
from saccade.types import Events, InputError
from tests.fuzz import fuzz
from tests.make.events import assert_equal, collect, random_events
from tests.make.formats import FORMATS, make

SOURCE = random_events(3000, width=64, height=48, span_us=90_000, start_us=5_000)
every_format = pytest.mark.parametrize("name", FORMATS)


def opened(name: str, path: Path):
    return open_events(path, **FORMATS[name][2])


@every_format
def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    with opened(name, make(name, tmp_path, SOURCE)) as reader:
        got = collect(reader)
        assert_equal(got, SOURCE)
        assert (got.t.dtype, got.x.dtype, got.y.dtype, got.p.dtype) == (np.int64, np.uint16, np.uint16, np.bool_)
        assert reader.count == len(SOURCE)
        assert (reader.start_us, reader.end_us) == (SOURCE.t[0], SOURCE.t[-1] + 1)
        assert reader.duration_us == SOURCE.t[-1] + 1 - SOURCE.t[0]
        assert reader.fraction == pytest.approx(1)


@every_format
def test_any_piece_equals_that_piece_of_the_whole(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    with opened(name, make(name, tmp_path, SOURCE)) as reader:
        limits = [(0, 10**9), (0, 5_000), (94_000, 10**9), (50_000, 50_000), (60_000, 50_000), (-5, 6_000)]
        limits += [tuple(sorted(random.integers(4_000, 97_000, 2).tolist())) for _ in range(30)]
        for start_us, end_us in limits:
            assert_equal(reader.between(start_us, end_us), SOURCE[(SOURCE.t >= start_us) & (SOURCE.t < end_us)])


@every_format
@pytest.mark.parametrize("count", [0, 1])
def test_no_event_and_one_event(name: str, count: int, tmp_path: Path) -> None:
    try:
        with opened(name, make(name, tmp_path, SOURCE[:count])) as reader:
            assert_equal(collect(reader), SOURCE[:count])
            assert reader.count == count
            assert reader.duration_us == count
    except InputError as error:  # a text or a bag without any event may not say enough to be opened
        assert count == 0, error
        assert name in str(error)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "es"])  # whose decoder refuses them
def test_events_outside_the_sensor_are_passed_on(name: str, tmp_path: Path) -> None:
    x = SOURCE.x[:100].copy()
    x[50] = 100
    source = Events(SOURCE.t[:100], x, SOURCE.y[:100], SOURCE.p[:100], 64, 48)
    with opened(name, make(name, tmp_path, source)) as reader:
        assert collect(reader).x.max() == 100


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("ecf", "es")])  # which can't store a step back
def test_time_backwards_is_passed_on_and_never_loses_events(name: str, tmp_path: Path) -> None:
    t = SOURCE.t[:1000].copy()
    t[500] += 40
    source = Events(t, SOURCE.x[:1000], SOURCE.y[:1000], SOURCE.p[:1000], 64, 48)
    with opened(name, make(name, tmp_path, source)) as reader:
        assert_equal(collect(reader), source)
        try:
            got = reader.between(t[300], t[700])
        except InputError as error:
            assert "--sort" in str(error)
        else:
            assert_equal(got, source[(t >= t[300]) & (t < t[700])])


@every_format
def test_the_index_is_kept_in_the_cache_and_nowhere_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("SACCADE_CACHE", str(cache))
    folder = tmp_path / "recordings"
    folder.mkdir()
    path = make(name, folder, SOURCE)
    for _ in range(2):
        with opened(name, path) as reader:
            assert reader.count == len(SOURCE)
    assert [file.name for file in folder.iterdir()] == [path.name]
    kept = list(cache.rglob("*.npz"))
    assert len(kept) == isinstance(reader, IndexedReader)
    if kept:
        kept[0].write_bytes(kept[0].read_bytes()[:100])  # damaged: built anew
        with opened(name, path) as reader:
            assert reader.count == len(SOURCE)
        make(name, folder, SOURCE[:1000])  # another recording under the same name
        with opened(name, path) as reader:
            assert reader.count == 1000


@every_format
def test_an_unwritable_cache_costs_only_time(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "file" / "cache"))
    with opened(name, make(name, tmp_path, SOURCE)) as reader:
        assert len(reader.between(0, 50_000)) == (SOURCE.t < 50_000).sum()


@every_format
def test_mutated_inputs_give_events_or_inputerror(name: str) -> None:
    """The fuzzer of `make fuzz`, with fewer inputs; anything but InputError fails here."""
    count = 100 if FORMATS[name][0] in (".h5", ".hdf5") else 300  # HDF5 is tried in a copy of this process, which is large here
    readable, refused, _ = fuzz(name, 1_000_000, 1_000_000 + count)
    assert readable + refused == count


@pytest.mark.parametrize("name", ["a.raw", "a.dat", "a.h5", "a.csv", "a.npz", "a.aedat4", "a.bag", "a.mcap", "a.es", "a.bin"])
@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\xff" * 5000, b"\x89PNG\r\n\x1a\n\0\0\0\0", b"hello world\n"])
def test_what_is_no_recording_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=str(tmp_path / name)), open_events(tmp_path / name) as reader:
        collect(reader)


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        open_events(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        open_events(tmp_path / "missing.raw")
    with pytest.raises(InputError, match="not a regular file"):
        open_events("/dev/null")
    (tmp_path / "a.raw.xz").write_bytes(b"\xfd7zXZ\0")
    with pytest.raises(InputError, match=r"xz-compressed.*xz --decompress"):
        open_events(tmp_path / "a.raw.xz")


def test_no_permission(tmp_path: Path) -> None:
    """As an ordinary user, also where the tests run as root."""
    path = make("dat", tmp_path, SOURCE)
    path.chmod(0)
    code = f"""
import os
from saccade.events.open import open_events
from saccade.events.reader import IndexedReader
from saccade.types import InputError
if os.geteuid() == 0:
    os.chmod({str(tmp_path)!r}, 0o755)
    os.setgroups([]); os.setegid(65534); os.seteuid(65534)
try:
    open_events({str(path)!r})
except InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert "permission" in result.stdout, result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 10}, "expected both or none"),
        ({"width": 0, "height": 5}, "from 1 to 65535"),
        ({"width": 60_000, "height": 60_000}, "more than any has"),
        ({"columns": "t x y p"}, "has no meaning"),
        ({"topic": "/cam"}, "has no meaning"),
    ],
)
def test_options_that_make_no_sense(options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        open_events(make("dat", tmp_path, SOURCE), **options)


@every_format
def test_a_stated_sensor_goes_before_that_of_the_file(name: str, tmp_path: Path) -> None:
    options = FORMATS[name][2] | {"width": 100, "height": 90}
    with open_events(make(name, tmp_path, SOURCE), **options) as reader:
        assert {(events.width, events.height) for events in reader} == {(100, 90)} == {(reader.width, reader.height)}


def test_index_beside_the_recording_only_when_asked(tmp_path: Path) -> None:
    path = make("evt3", tmp_path, SOURCE)
    with open_events(path, index=tmp_path / "mine.npz") as reader:
        assert reader.count == len(SOURCE)
    assert (tmp_path / "mine.npz").exists()
    later = Events(SOURCE.t + 3 * 4096, SOURCE.x, SOURCE.y, SOURCE.p, 64, 48)  # the same number of bytes
    size = path.stat().st_size
    assert make("evt3", tmp_path, later).stat().st_size == size
    os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))  # changed, though by its time it is older than the index
    with open_events(path, index=tmp_path / "mine.npz") as reader:
        assert reader.start_us == later.t[0]


@pytest.mark.parametrize("damage", [b"", b"PK", b"\x93NUMPY", b"\x80\x04]"])
def test_a_damaged_index_is_built_anew(damage: bytes, tmp_path: Path) -> None:
    path, index = make("evt3", tmp_path, SOURCE), tmp_path / "mine.npz"
    index.write_bytes(damage)
    with open_events(path, index=index) as reader:
        assert reader.count == len(SOURCE)
    whole = index.read_bytes()
    for at in range(0, len(whole), 37):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with open_events(path, index=index) as reader:
            reader.count  # noqa: B018  may be what the damaged index says, but nothing is raised


@pytest.mark.parametrize("change", ["vanishes", "grows", "shrinks"])
@every_format
def test_a_file_that_changes_while_it_is_read(name: str, change: str, tmp_path: Path) -> None:
    """All events, a part of them, or InputError: no crash and none that weren't there."""
    path = make(name, tmp_path, SOURCE)
    with opened(name, path) as reader:
        if change == "vanishes":
            path.unlink()
        elif change == "grows":
            with path.open("ab") as file:
                file.write(path.read_bytes()[-1000:])
        else:
            os.truncate(path, path.stat().st_size // 2)
        try:
            events = collect(reader)
        except InputError as error:
            assert str(path) in str(error)
            return
    assert_equal(events[: len(SOURCE)], SOURCE[: len(events)])
    assert change != "vanishes" or len(events) == len(SOURCE)


@pytest.mark.parametrize("name", ["evt3", "mcap_evt3", "csv", "aedat4"])
def test_no_cached_index_is_trusted(name: str, tmp_path: Path) -> None:
    """Its marks go into compiled code. What isn't sound is built again; what is, but doesn't fit, is an error."""
    path, index = make(name, tmp_path, SOURCE), tmp_path / "index.npz"
    options = FORMATS[name][2]
    with open_events(path, index=index, **options) as reader:
        expected, length = reader.between(reader.start_us, reader.end_us), reader.mark_length  # type: ignore[attr-defined]
    good = dict(np.load(index))
    rows = len(good["counts"])
    for changes in (
        {"marks": np.zeros((rows, length + 1), np.int64)},
        {"marks": good["marks"][:, : length - 1]},
        {"marks": good["marks"].astype(np.float64)},
        {"marks": good["marks"] + 2**40},
        {"counts": good["counts"] - 10**6},
        {"counts": np.zeros(10**6, np.int64)},
        {"extent": np.array([10**9, 1])},
    ):
        np.savez(index, **{**good, **changes})
        with open_events(path, index=index, **options) as reader:
            assert_equal(reader.between(reader.start_us, reader.end_us), expected)
    np.savez(index, **{**good, "counts": good["counts"] + 1})
    with open_events(path, index=index, **options) as reader, pytest.raises(InputError, match=r"index\.npz says; delete that file"):
        reader.between(reader.start_us, reader.end_us)
