"""What is compiled is kept on disk, and compiled again when anything that went into it changes."""

import os
import subprocess
import sys
from pathlib import Path

CALLEE = "from saccade.compiled import compiled\n\n@compiled\ndef inner(x):\n    return x + {number}\n"
CALLER = "from saccade.compiled import compiled\nfrom callee import inner\n\n@compiled\ndef outer(x):\n    return 10 * inner(x)\n"
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
