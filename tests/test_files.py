"""Records out of JSON come back equal or are refused with their place; files have one writer, and are whole or not there."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.files import BLOCK_BYTES, Busy, check_name, from_plain, only_writer, replacing, sampled_digest, to_plain
from saccade.types import InputError

numbers = st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@dataclass(frozen=True)
class Inner:
    kind: Literal["one", "other"]
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    on: bool
    pair: tuple[float, float]
    inner: tuple[Inner, ...] = ()
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)


inners = st.builds(Inner, st.sampled_from(["one", "other"]), st.none() | numbers)
outers = st.builds(
    Outer, st.text(), st.integers(), st.booleans(), st.tuples(numbers, numbers), st.lists(inners).map(tuple),
    st.dictionaries(st.text(), st.lists(numbers).map(tuple), max_size=3),
)  # fmt: skip


@given(outers)
def test_what_was_written_comes_back(record: Outer) -> None:
    text = json.dumps(to_plain(record), allow_nan=False)
    assert from_plain(Outer, json.loads(text), "record") == record


def test_nan_comes_back_as_one_object() -> None:
    """So that records that hold it can be equal."""
    plain = to_plain(Inner("one", math.nan))
    assert plain["share"] == "NaN"
    assert from_plain(Inner, plain, "record") == from_plain(Inner, plain, "record")


@given(st.sampled_from([Outer, Inner, float, tuple[int, int], Literal["one"], dict[str, int], bool]), json_values)
def test_anything_else_is_refused_with_its_place(kind: Any, value: Any) -> None:
    try:
        read = from_plain(kind, value, "file.json")
    except InputError as error:
        assert str(error).startswith("file.json")
    else:
        assert from_plain(kind, json.loads(json.dumps(to_plain(read))), "again") == read or read != read


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": True}, "record.count: True; expected int"),
        ({"on": 1}, "record.on: 1; expected bool"),
        ({"pair": [1]}, r"record.pair: \[1\]; expected tuple"),
        ({"pair": [1, 10**400]}, r"record.pair\[1\]: 10+; expected float"),
        ({"inner": [{"kind": "third"}]}, r"record.inner\[0\].kind: 'third'; expected one, other"),
        ({"colour": 1}, "colour unknown or missing"),
    ],
)
def test_the_place_is_named(change: dict, told: str) -> None:
    plain = to_plain(Outer("a", 1, True, (1.0, 2.0)))
    with pytest.raises(InputError, match=told):
        from_plain(Outer, plain | change, "record")


@pytest.mark.parametrize("size", [1, 1 << 24, (1 << 24) + 1, 100_000_003], ids=lambda size: f"{size:,}")
def test_a_digest_sees_the_ends_and_the_size_of_a_file_of_any_size(size: int, tmp_path: Path) -> None:
    """Up to 16 MB every byte, above that at least those of blocks all over the file; what is between them costs no time."""
    path = tmp_path / "file"

    def digest(changed: int | None = None, length: int = size) -> str:
        with path.open("wb") as file:
            file.truncate(length)  # takes no space
            if changed is not None:
                file.seek(changed)
                file.write(b"x")
        return sampled_digest(path)

    plain = digest()
    assert digest() == plain
    assert plain not in {digest(0), digest(size - 1), digest(length=size + 1), digest(length=size - 1)}
    assert size > 1 << 24 or digest(size // 2) != plain
    places = range(size // 8, size - size // 8, BLOCK_BYTES // 2) if size > 1 << 24 else ()
    assert not places or sum(digest(place) != plain for place in places[::100]) >= 1


HOLD = """
import sys, time
from pathlib import Path
from saccade.files import only_writer, replacing
with {what}(Path(sys.argv[1])) as part:
    if part is not None:
        part.write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(what: str, path: Path) -> Iterator[subprocess.Popen]:
    """That is in the middle of writing."""
    command = [sys.executable, "-c", HOLD.format(what=what), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize("what", ["only_writer", "replacing"])
def test_a_second_writer_is_refused_until_the_first_is_dead(what: str, tmp_path: Path) -> None:
    writer, path = {"only_writer": only_writer, "replacing": replacing}[what], tmp_path / "out.json"
    with another_process(what, path) as process:
        with pytest.raises(Busy, match="another process"), writer(path):
            pytest.fail("two writers")
        process.kill()
        process.wait()
    left = path if what == "only_writer" else tmp_path
    assert [file.name for file in left.iterdir()] == [".lock" if what == "only_writer" else ".out.json.part.json"]
    with writer(path) as part:
        if part is not None:
            part.write_text("whole")
    assert [file.name for file in left.iterdir()] == ([] if what == "only_writer" else ["out.json"])
    assert what == "only_writer" or path.read_text() == "whole"


def test_a_forked_child_holds_no_lock(tmp_path: Path) -> None:
    """Workers of a training outlive it for seconds after it was killed; the same command goes on at once."""
    with only_writer(tmp_path):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
    try:
        with only_writer(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _write_half(path: Path, error: BaseException) -> None:
    with replacing(path) as part:
        part.write_text("half")
        raise error


def test_an_error_leaves_no_part_and_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    with pytest.raises(KeyboardInterrupt):
        _write_half(tmp_path / "a.txt", KeyboardInterrupt())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "before"}


@pytest.mark.parametrize(
    "name", ["x" * 300, "a\0b.txt", "missing/a.txt", "\ud800.txt"], ids=["too long", "zero byte", "no folder", "surrogate"]
)
def test_what_cannot_be_a_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't write there"), replacing(tmp_path / name):
        pytest.fail("opened")
    assert not list(tmp_path.iterdir())


def test_others_may_read_what_was_written(tmp_path: Path) -> None:
    """As if the shell had made it, whatever the library that wrote it thinks: safetensors makes files for their owner alone."""
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "a.bin") as part:
        part.unlink()
        os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))
    assert (tmp_path / "a.bin").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_is_no_folder_to_write_into(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("precious")
    with pytest.raises(InputError, match="is a file; expected a folder"), only_writer(tmp_path / "run"):
        pytest.fail("opened")


BECOME_NOBODY = """
import os, sys
from pathlib import Path
from saccade.files import InputError, only_writer, replacing
os.setuid(65534)
for writer, name in ((only_writer, ""), (replacing, "a.txt")):
    try:
        with writer(Path(sys.argv[1]) / name):
            print("opened")
    except InputError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a child becomes another user, which only root may: root itself can write everywhere")
def test_a_read_only_folder_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o555)
        command = [sys.executable, "-c", BECOME_NOBODY, folder]
        said = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert said.stdout.count("can't write there (Permission denied); choose another folder") == 2, said.stderr


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Can't close dataset (file write failed: file descriptor = 4, errno = 28, error message = 'No space left on device')"),
        ValueError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=["Python", "HDF5", "safetensors"],
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_full_disk_is_explained_whoever_tells_of_it(error: Exception, inside: bool, tmp_path: Path) -> None:
    if inside:
        outer = RuntimeError("unexpected pos 576 vs 534")  # of torch, while it handles the other
        outer.__context__, error = error, outer
    with pytest.raises(InputError, match="the disk is full"):
        _write_half(tmp_path / "a", error)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "..", ".", "", "a/", "a//b", "a\0b"])
def test_names_in_files_stay_in_their_folder(name: str) -> None:
    with pytest.raises(InputError, match=r"list\.json: names .* without \.\. and not absolute"):
        check_name(name, "list.json")
    assert check_name("a/b..c.h5", "list.json") == "a/b..c.h5"
