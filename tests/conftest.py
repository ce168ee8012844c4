"""Fixtures of all tests: the folder of real recordings, and a cache folder that is never the user's."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def shared() -> Path:
    """Real recordings and reference outputs, beside the repository on the machines that have them."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} isn't there: real recordings and published outputs can't be compared with")
    return SHARED


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


settings.register_profile("saccade", deadline=None)  # the first call of a compiled function takes seconds
settings.load_profile("saccade")

# A shell starts background jobs with Ctrl-C ignored, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some virtual machines offer AMX and then refuse it: torch's bfloat16 would end the process with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Two test processes on two cores: one thread each, or they crawl.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

# Clusters of the tests: no machine but this one can reach them, and nobody is told of them.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's name for: on 127.0.0.1 only
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # else 15, and beside other work they would crawl
