"""HDF5 files of others: nothing outside is opened, a crash of the library is an InputError, each file is tried once, large chunks once."""

import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from saccade.datasets.stored import frame_shape, read_frames
from saccade.events import hdf5_file
from saccade.events.hdf5 import try_readers
from saccade.events.open import open_events
from saccade.machine import killing_signal_of_copy
from saccade.types import InputError
from tests.make.attacks import hdf5
from tests.make.events import random_events
from tests.make.hdf5 import write

COLUMNS = {"t": "i8", "x": "u2", "y": "u2", "p": "u1"}


def external_link(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["events"] = h5py.ExternalLink(str(secret), "/events")


def external_link_behind_a_soft_one(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["there"] = h5py.ExternalLink(str(secret), "/")
        file["events"] = h5py.SoftLink("/there/events")


def external_storage(path: Path, secret: Path) -> None:
    with hdf5(path) as file:
        del file["events/x"]
        file.create_dataset("events/x", (4,), "u2", external=[(str(secret), 0, 8)])


def virtual(path: Path, secret: Path) -> None:
    with hdf5(path) as file:
        del file["events/x"]
        layout = h5py.VirtualLayout((4,), "u2")
        layout[:] = h5py.VirtualSource(str(secret), "events/x", (4,))
        file.create_virtual_dataset("events/x", layout)


def virtual_size(path: Path, secret: Path) -> None:
    """Not even the sensor's size."""
    with hdf5(path, size=False) as file:
        file.create_dataset("height", data=48)
        file.create_dataset("width", (1,), "i8", external=[(str(secret), 0, 8)])


@pytest.mark.parametrize("attack", [external_link, external_link_behind_a_soft_one, external_storage, virtual, virtual_size])
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_nothing_outside_the_file_is_read(attack, kind: str, tmp_path: Path) -> None:
    secret, path = tmp_path / "secret.h5", tmp_path / "a.h5"
    if kind == "pipe":
        os.mkfifo(secret)  # opening it would wait for ever
    else:
        hdf5(secret).close()
    attack(path, secret)
    with pytest.raises(InputError, match=r"a\.h5: .*other file"):
        open_events(path)


def test_frames_are_not_read_from_outside_either(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", (1, 2, 3, 4), "u1", external=[("/dev/zero", 0, 24)])
    with pytest.raises(InputError, match=r"a\.h5: .*other files"):
        frame_shape(tmp_path / "a.h5")
    with pytest.raises(InputError, match=r"a\.h5: .*other files"):
        read_frames(tmp_path / "a.h5", 0, 1)


def test_links_inside_the_file_are_followed_but_not_in_a_circle(tmp_path: Path) -> None:
    with hdf5(tmp_path / "a.h5") as file:
        file.move("events", "elsewhere")
        file["events"] = h5py.SoftLink("/elsewhere")
    with open_events(tmp_path / "a.h5") as reader:
        assert reader.count == 4
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["events"], file["CD"] = h5py.SoftLink("/CD"), h5py.SoftLink("/events")
    with pytest.raises(InputError, match=r"b\.h5: .*links"):
        open_events(tmp_path / "b.h5")


def test_a_crash_of_the_library_is_an_error(shared: Path, tmp_path: Path) -> None:
    """In a process of its own, because before this it ended the process."""
    path = shutil.copy(shared / "attacks" / "damaged_rvt_sigsegv.h5", tmp_path)
    code = "import sys, saccade\ntry: saccade.open_events(sys.argv[1])\nexcept saccade.InputError as error: print(error)"
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert found.returncode == 0
    assert "reading it would end this program (signal 11)" in found.stdout
    assert found.stderr == ""


def test_each_file_is_tried_once_in_a_process_and_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    monkeypatch.setattr(hdf5_file, "killing_signal_of_copy", lambda *arguments, **options: tries.append(1))
    path = tmp_path / "a.h5"
    write(path, random_events(100, width=64, height=48))
    for _ in range(3):
        open_events(path).close()
    assert len(tries) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and other threads
        child = os.fork()  # as a training makes its loaders
    if child == 0:
        try:
            open_events(path).close()
        finally:
            os._exit(len(tries))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    os.utime(path, (1, 1))
    open_events(path).close()
    assert len(tries) == 2


def test_many_files_are_tried_together_and_a_damaged_one_costs_only_its_own(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training on 5,000 recordings waited two minutes for 5,000 copies of itself before its first step."""
    real, tries = hdf5_file.killing_signal_of_copy, []

    def count(*arguments: Any, **options: Any) -> int | None:
        tries.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(hdf5_file, "killing_signal_of_copy", count)
    good = [tmp_path / f"{name}.h5" for name in "abc"]
    for path in good:
        write(path, random_events(100, width=64, height=48))
    try_readers(good)
    for path in good:
        open_events(path).close()
    assert len(tries) == 1
    late = tmp_path / "late.h5"
    write(late, random_events(100, width=64, height=48))
    damaged = Path(shutil.copy(shared / "attacks" / "damaged_rvt_sigsegv.h5", tmp_path))
    try_readers([damaged, late])  # its copy ends; nothing is taken for good
    with pytest.raises(InputError, match="would end this program"):
        open_events(damaged)
    open_events(late).close()
    assert len(tries) == 4


def test_the_copy_leaves_nothing_and_says_how_it_ended() -> None:
    limits, before = {"seconds": 5, "room": 100 << 20}, children()
    assert killing_signal_of_copy(lambda: None, **limits) is None
    assert killing_signal_of_copy(lambda: 1 / 0, **limits) is None
    assert killing_signal_of_copy(lambda: os.kill(os.getpid(), signal.SIGSEGV), **limits) == signal.SIGSEGV
    assert killing_signal_of_copy(lambda: bytearray(1 << 30), **limits) == signal.SIGKILL
    assert killing_signal_of_copy(_forever, seconds=1, room=100 << 20) == signal.SIGXCPU
    assert children() == before


def children() -> set[str]:
    """Processes that this one has started, and that it hasn't waited for."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def _forever() -> None:
    while True:
        pass


def test_a_forked_worker_tries_files_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    hdf5(path).close()

    def work() -> None:
        open_events(path).close()
        os.kill(os.getpid(), signal.SIGUSR1)  # reached

    assert killing_signal_of_copy(work, seconds=20, room=1 << 30) == signal.SIGUSR1


def test_a_large_chunk_is_unpacked_once(tmp_path: Path) -> None:
    """HDF5 ignores the size of the cache for a data set that is open already: every slice unpacked the whole chunk again."""
    path, count = tmp_path / "a.h5", 2_000_000
    with h5py.File(path, "w") as file:
        for name, dtype in COLUMNS.items():
            file.create_dataset(f"events/{name}", data=np.zeros(count, dtype), chunks=(count,), compression="gzip")
        file.attrs["width"], file.attrs["height"] = 64, 48
    with open_events(path) as reader:
        for dataset in reader._layout.datasets.values():  # type: ignore[attr-defined]
            assert dataset.id.get_access_plist().get_chunk_cache()[1] >= count * dataset.dtype.itemsize
        assert sum(map(len, reader)) == count
