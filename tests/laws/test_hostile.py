"""LAW: an input of n bytes is refused or opened with at most 400 MB + 20 n of memory and about a second of processor time per MB."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from saccade.samples import shipped_weights
from tests.examine import Examiner, Outcome
from tests.make.attacks import BOMBS, EVENTS
from tests.make.formats import FORMATS, make


@pytest.fixture(scope="module")
def examine() -> Iterator[Examiner]:
    examiner = Examiner()
    yield examiner
    examiner.close()


def check_law(found: Outcome, path: Path) -> None:
    size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
    assert found.how in ("opened", "refused"), found
    assert found.megabytes <= 400 + 20 * size / 1e6, found
    assert found.seconds <= 2 + 2 * size / 1e6, found  # twice the law: processors share their caches and clocks


@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_takes_much(name: str, tmp_path: Path, examine: Examiner) -> None:
    what, write = BOMBS[name]
    path = write(tmp_path)
    check_law(examine(what, path), path)


@pytest.mark.parametrize("name", FORMATS)
def test_no_good_recording_does_either(name: str, tmp_path: Path, examine: Examiner) -> None:
    path = make(name, tmp_path, EVENTS)
    found = examine("events", path)
    check_law(found, path)
    assert found.how == "opened" or FORMATS[name][2], found


def test_no_good_weights_do_either(examine: Examiner) -> None:
    path = shipped_weights()["nano"]
    found = examine("weights", path)
    check_law(found, path)
    assert found.how == "opened"


@pytest.mark.parametrize("name", ["damaged_rvt_sigsegv.h5", "bomb_bz2.npz", "many.mcap"])
def test_files_that_got_through_once(name: str, shared: Path, tmp_path: Path, examine: Examiner) -> None:
    path = Path(shutil.copy(shared / "attacks" / name, tmp_path))
    found = examine("events", path)
    check_law(found, path)
    assert found.how == "refused"
