"""Open hostile files, each in a process of its own: how it ended, and what it took beyond what an idle process has.

A helper process imports everything once and then forks for each file, so that the tests themselves survive a crash and pay once.
"""

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS = 60  # of processor time: then SIGXCPU
MOST_BYTES = 8 << 30


@dataclass(frozen=True)
class Outcome:
    how: str  # opened, refused, an exception's name, or "signal 11"
    text: str
    seconds: float  # of processor time
    megabytes: float  # resident at most, beyond an idle process


class Examiner:
    def __init__(self) -> None:
        root = Path(__file__).parents[1]
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.examine"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
        )
        self._idle = self._ask("nothing", Path())

    def __call__(self, what: str, path: Path) -> Outcome:
        found = self._ask(what, path)
        return Outcome(found.how, found.text, found.seconds, found.megabytes - self._idle.megabytes)

    def _ask(self, what: str, path: Path) -> Outcome:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([what, str(path)]), file=self._process.stdin, flush=True)
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def use(what: str, path: Path) -> None:
    """What a user's first look at the file does."""
    from saccade.arrays import load_arrays
    from saccade.datasets.open import open_dataset
    from saccade.events.open import open_events
    from saccade.weights.load import read_weights

    if what == "events":
        with open_events(path) as reader:
            assert reader.count >= 0
            assert reader.duration_us >= 0
    elif what == "weights":
        read_weights(path)
    elif what == "labels":
        load_arrays(path)
    elif what == "dataset":
        for recording in open_dataset(path, "all").recordings:
            assert len(recording.labels) >= 0


def _examine(what: str, path: Path) -> dict[str, object]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        try:
            use(what, path)
            found = ["opened", ""]
        except BaseException as error:
            found = ["refused" if type(error).__name__ == "InputError" else type(error).__name__, str(error)[:300]]
        mine, helpers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(write_end, json.dumps([*found, helpers.ru_maxrss, mine.ru_maxrss]).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        answer = file.read()
    _, status, used = os.wait4(child, 0)
    how, text, helper_kb, _ = json.loads(answer) if answer else (f"signal {os.WTERMSIG(status)}", "", 0, 0)
    megabytes = max(used.ru_maxrss, helper_kb) / 1024
    return {"how": how, "text": text, "seconds": used.ru_utime + used.ru_stime, "megabytes": megabytes}


def main() -> None:
    import logging
    import tempfile

    from tests.make.events import random_events
    from tests.make.formats import FORMATS, make

    logging.getLogger("saccade").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SACCADE_CACHE"] = folder
        for name in FORMATS:  # so that what is compiled, is
            use("events", make(name, Path(folder), random_events(60, width=64, height=48)))
        use("weights", Path("nano"))
        for line in sys.stdin:
            what, path = json.loads(line)
            print(json.dumps(_examine(what, Path(path))), flush=True)


if __name__ == "__main__":
    main()
