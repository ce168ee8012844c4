"""PIECES OF WORK -> processes of this machine: results as they come, Ctrl-C decided in one place, no process outlives its parent."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from queue import Empty
from threading import Thread
from typing import Any, TypeVar

from saccade.types import InputError

Piece = TypeVar("Piece")
Outcome = TypeVar("Outcome")

POLL_S = 0.5  # how often the parent passes on what the processes reported


class Cancelled(Exception):
    """The parent process gave up, so this piece of work ends, too."""


class Stopped(KeyboardInterrupt):
    """Asked to stop between two steps; what was done is kept."""


_report: Callable[..., None] | None = None  # of this process; None = nobody listens


def report(*values: Any) -> None:
    """Tell the caller of `spread` about progress inside a piece of work. Raises Cancelled if the caller has given up."""
    if _report is not None:
        _report(*values)


def reporter() -> Callable[..., None]:
    """Who listens now, to be told later, while a `spread` inside this piece has a listener of its own."""
    return _report or (lambda *values: None)


def spread(
    work: Callable[[Piece], Outcome],
    pieces: Sequence[Piece],
    processes: int,
    *,
    heard: Callable[..., None] | None = None,
    begin: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
    what: str = "work",
) -> Iterator[tuple[Piece, Outcome]]:
    """(piece, WORK(piece)) as they are done; in this process, in order, if one is enough.

    HEARD gets what pieces pass to `report`. BEGIN(*ARGUMENTS) runs once in each new process, before its first piece. An exception of a
    piece, Ctrl-C, or leaving the loop ends the other pieces at their next `report`; then it is raised.
    """
    processes = min(processes, len(pieces))
    if processes <= 1:
        with listening(heard):
            for piece in pieces:
                yield piece, work(piece)
        return
    context = get_context("spawn")  # a forked child may inherit locks of torch, h5py or numba in the middle of their use
    stop, reports = context.Event(), context.Queue()
    with ProcessPoolExecutor(processes, context, _begin, (stop, reports, begin, arguments)) as pool:
        left: dict[Future[Outcome], Piece] = {pool.submit(work, piece): piece for piece in pieces}
        try:
            while left:
                done, _ = wait(left, POLL_S, FIRST_COMPLETED)
                _pass_on(reports, heard)
                for future in done:
                    yield left.pop(future), future.result()
        except BrokenProcessPool as error:
            raise InputError(
                f"{what}: a process was ended from outside, perhaps for want of memory; run the same command again with fewer processes"
            ) from error
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            _pass_on(reports, heard)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM (clusters send it before they kill) are noted in the list: the loop looks there between two steps."""
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        asked.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread may
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def listening(heard: Callable[..., None] | None) -> Iterator[None]:
    """While the block runs, HEARD gets what this process passes to `report`."""
    global _report
    before, _report = _report, heard
    try:
        yield
    finally:
        _report = before


def _begin(stop: Any, reports: Any, begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """Ctrl-C reaches every process of the terminal: only the parent decides. Whoever's parent was killed ends itself."""
    global _report

    def pass_on(*values: Any) -> None:
        if stop.is_set():
            raise Cancelled
        if values:
            reports.put(values)

    _report = pass_on
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _pass_on(reports: Any, heard: Callable[..., None] | None) -> None:
    while True:
        try:
            values = reports.get_nowait()
        except Empty:
            return
        if heard is not None:
            heard(*values)
