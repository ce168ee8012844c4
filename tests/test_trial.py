"""A program that would end this process ends another one."""

import signal

import pytest

from saccade.trial import killing_signal

ENDS = "import os, sys; os.kill(os.getpid(), int(sys.argv[1]))"


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGKILL, signal.SIGSEGV])
def test_a_program_that_is_killed_is_told_by_its_signal(number: signal.Signals) -> None:
    assert killing_signal(ENDS, str(int(number))) == number


@pytest.mark.parametrize("code", ["", "raise ValueError", "import sys; sys.exit(3)"])
def test_a_program_that_ends_by_itself_is_not(code: str) -> None:
    assert killing_signal(code) is None
