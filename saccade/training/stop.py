"""SIGNALS -> A REQUEST TO STOP that the loop sees between two steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(KeyboardInterrupt):
    """Asked to stop; the checkpoint is written."""


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM (clusters send it before they kill) are noted: the step is finished, then a checkpoint is written."""
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
