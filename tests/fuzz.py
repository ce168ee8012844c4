"""Mutated recordings for every reader: nothing but InputError may come out, and soon.

    python -m tests.fuzz --inputs 100000            # all formats; `make fuzz`
    python -m tests.fuzz --inputs 5000 --formats evt3 hdf5

Each input starts from a small valid recording and is damaged at random places: bytes changed, cut off, inserted, removed, repeated. It is
read in full, indexed, and looked up at random. A worker process that dies or hangs is reported with the seed of its input.
HDF5 is damaged where its structures begin as often as anywhere; "caught" are inputs on which the library would have ended the process.
"""

import argparse
import logging
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np

from saccade.events import hdf5_file
from saccade.events.open import open_events
from saccade.types import InputError
from tests.make.events import random_events
from tests.make.formats import FORMATS, make

HDF5_STRUCTURES = re.compile(rb"TREE|SNOD|HEAP|GCOL|OHDR|OCHK|FRHP|BTHD")
SECONDS_AN_INPUT = 20  # of processor time
EVENTS = random_events(60, width=64, height=48, span_us=30_000, start_us=5_000)


def mutate(data: bytes, random: np.random.Generator) -> bytes:
    """One to eight damages; places are drawn near the beginning as often as anywhere, since headers steer everything."""
    damaged = bytearray(data)
    structures = [found.start() for found in HDF5_STRUCTURES.finditer(data)] if data.startswith(b"\x89HDF") else []
    for _ in range(int(random.integers(1, 9))):
        if not damaged:
            break
        at = int(random.integers(0, len(damaged)) if random.random() < 0.5 else random.integers(0, min(len(damaged), 256)))
        if structures and random.random() < 0.5:
            at = min(structures[int(random.integers(0, len(structures)))] + int(random.integers(0, 64)), len(damaged) - 1)
        length = int(random.integers(1, 17))
        kind = random.integers(0, 7)
        if kind <= 1:
            damaged[at] ^= 1 << int(random.integers(0, 8))
        elif kind == 2:
            damaged[at : at + length] = random.bytes(min(length, len(damaged) - at))
        elif kind == 3:
            extreme = [b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"-1", b"nan", b"1e999", b"\n"]
            value = extreme[int(random.integers(0, len(extreme)))]
            damaged[at : at + len(value)] = value
        elif kind == 4:
            del damaged[at : at + length if random.random() < 0.7 else None]
        elif kind == 5:
            damaged[at:at] = random.bytes(length)
        else:
            other = int(random.integers(0, len(damaged)))
            damaged[at:at] = damaged[other : other + 4 * length]
    return bytes(damaged)


def read_everything(path: Path, index: Path, options: dict) -> int:
    """All that a user does with a recording. Returns the number of events; raises InputError or, if there is a bug, something else."""
    index.unlink(missing_ok=True)
    with open_events(path, index=index, **options) as reader:
        count = sum(len(events) for events in reader)
        assert count == reader.count
        assert len(reader.between(reader.start_us - 1, reader.start_us + reader.duration_us // 2)) <= count
        assert reader.duration_us >= 0
    return count


def fuzz(name: str, first: int, last: int, current: Synchronized | None = None) -> tuple[int, int, int]:
    """Inputs of the seeds first to last - 1. Returns how many were readable, how many refused, and how many of those would have ended
    the process. `current` holds the seed under way.
    """
    readable = refused = caught = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        os.environ["SACCADE_CACHE"] = folder
        path, index = make(name, Path(folder), EVENTS), Path(folder) / "index.npz"
        original, options = path.read_bytes(), FORMATS[name][2]
        read_everything(path, index, options)  # compiles what is compiled
        for seed in range(first, last):
            if current is not None:
                current.value = seed
            path.write_bytes(mutate(original, np.random.default_rng([seed, len(name)])))
            hdf5_file._tried.clear()  # the clock of the file system is too coarse to tell this file from the one before
            signal.setitimer(signal.ITIMER_PROF, SECONDS_AN_INPUT)  # a hang ends the process
            try:
                read_everything(path, index, options if seed % 2 else {})
                readable += 1
            except InputError as error:
                refused += 1
                caught += ": reading it " in str(error)
            except BaseException as error:
                error.add_note(f"fuzz: format {name}, seed {seed}: python -m tests.fuzz --formats {name} --first {seed} --inputs 1")
                raise
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    return readable, refused, caught


def _work(name: str, first: int, last: int, current: Synchronized, out: SimpleQueue) -> None:
    out.put(fuzz(name, first, last, current))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="mutated inputs of each format")
    parser.add_argument("--first", type=int, default=0, help="seed of the first input")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS))
    arguments = parser.parse_args()
    logging.getLogger("saccade").setLevel(logging.CRITICAL)
    context = multiprocessing.get_context("fork")
    failed = False
    for name in arguments.formats:
        start = time.perf_counter()
        readable = refused = caught = 0
        end = arguments.first + arguments.inputs
        for first in range(arguments.first, end, 5000):  # a fresh process now and then, so that a crash is cheap
            last = min(first + 5000, end)
            out, current = context.SimpleQueue(), context.Value("q", first)
            worker = context.Process(target=_work, args=(name, first, last, current, out))
            worker.start()
            worker.join()
            if worker.exitcode != 0:
                print(f"{name}: FAILED at seed {current.value} (exit code {worker.exitcode})", flush=True)
                failed = True
                continue
            ok, no, crashes = out.get()
            readable, refused, caught = readable + ok, refused + no, caught + crashes
        seconds = time.perf_counter() - start
        counts = f"{readable + refused:,} inputs, {readable:,} readable, {refused:,} refused, {caught:,} of them caught"
        print(f"{name:7} {counts}, {seconds:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
