"""Pieces of work give the same results in one process and in several; what they report is heard; nothing goes on after an error."""

import time
from pathlib import Path

import pytest

from saccade.pool import Cancelled, report, spread
from saccade.types import InputError

_begun: list[str] = []


def square(number: int) -> int:
    report("done", number)
    return number**2


def begin(word: str) -> None:
    _begun.append(word)


def begun(_: int) -> list[str]:
    return _begun


def fail_or_wait(path: Path) -> None:
    """One piece fails; the other reports until it is cancelled, and then says so in a file."""
    if path.name == "wrong":
        while not (path.parent / "begun").exists():
            time.sleep(0.01)
        raise InputError("wrong")
    (path.parent / "begun").touch()
    try:
        while True:
            report()
            time.sleep(0.01)
    except Cancelled:
        path.touch()
        raise


@pytest.mark.parametrize("processes", [1, 2])
def test_results_and_reports_are_the_same_with_any_number_of_processes(processes: int) -> None:
    heard: list[tuple[str, int]] = []
    results = dict(spread(square, range(6), processes, heard=lambda *values: heard.append(values)))
    assert results == {number: number**2 for number in range(6)}
    assert sorted(heard) == [("done", number) for number in range(6)]


def test_begin_runs_once_in_each_new_process() -> None:
    assert all(words == ["hello"] for _, words in spread(begun, range(4), 2, begin=begin, arguments=("hello",)))


def test_an_error_ends_the_other_pieces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="wrong"):
        list(spread(fail_or_wait, [tmp_path / "wrong", tmp_path / "cancelled"], 2))
    assert (tmp_path / "cancelled").exists()


def test_reports_to_nobody_are_lost() -> None:
    report("anything")


def test_nothing_to_do_gives_nothing() -> None:
    assert list(spread(square, [], 4)) == []
