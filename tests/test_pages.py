"""Memory that is freed stays with the process, where malloc lets itself be told."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import resource
import numpy as np
from saccade.pages import keep_freed_memory

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
