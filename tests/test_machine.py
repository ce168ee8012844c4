"""numba keeps what it compiled, malloc keeps what was freed, and code that may crash does so in another process."""

import os
import platform
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from saccade.machine import interruptible, killing_signal

CALLEE = "from saccade.machine import compiled\n\n@compiled\ndef inner(x):\n    return x + {number}\n"
CALLER = "from saccade.machine import compiled\nfrom callee import inner\n\n@compiled\ndef outer(x):\n    return 10 * inner(x)\n"
RUN = "import caller; print(caller.outer(1), sum(caller.outer.stats.cache_hits.values()))"


def test_a_change_in_another_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)

    def run(number: int, time_s: int) -> list[int]:
        (tmp_path / "callee.py").write_text(CALLEE.format(number=number))
        os.utime(tmp_path / "callee.py", (time_s, time_s))
        path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        result = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
        return [int(word) for word in result.stdout.split()]

    assert run(1, 1_000) == [20, 0]
    assert run(1, 1_000) == [20, 1]  # kept
    assert run(5, 2_000) == [60, 0]  # made again


CODE = """
import resource
import numpy as np
from saccade.machine import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(4_000_000)  # 32 MB: without being told, malloc maps and unmaps it every time
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
assert keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc: nothing to tell")
def test_the_same_pages_are_used_again() -> None:
    root = Path(__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=root)
    before, after = (int(word) for word in result.stdout.split())
    assert after < before / 10


ENDS = "import os, sys; os.kill(os.getpid(), int(sys.argv[1]))"


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGKILL, signal.SIGSEGV])
def test_a_program_that_is_killed_is_told_by_its_signal(number: signal.Signals) -> None:
    assert killing_signal(ENDS, str(int(number))) == number


@pytest.mark.parametrize("code", ["", "raise ValueError", "import sys; sys.exit(3)"])
def test_a_program_that_ends_by_itself_is_not(code: str) -> None:
    assert killing_signal(code) is None


# As modules in C do: Ctrl-C while scipy was being imported was lost once in some tries.
SWALLOWS = "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.1)\nexcept BaseException:\n    pass\n"


class Dying:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)


def be_interrupted(where: str) -> None:
    with interruptible():
        if where == "import":
            import_module("swallows_interrupts")
        elif where == "__del__":
            Dying()
        else:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)


@pytest.mark.parametrize("where", ["import", "__del__", "here"])
def test_no_ctrl_c_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    (tmp_path / "swallows_interrupts.py").write_text(SWALLOWS)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    started_s = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            be_interrupted(where)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started_s < 50
