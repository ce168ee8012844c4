"""From the end of a window to its boxes, in real time: `python -m benchmarks.latency`, p50 and p99 over --minutes at 50, 100 and 200 Hz.

The sample recording goes round and round through a stream of `nano`, in portions of a millisecond, each pushed when its time has come on
the clock on the wall; first with the other core idle, then beside a process that never rests. Latency is from the moment at which a
window ends on that clock to the moment at which its boxes are there: waiting, cutting, network, decoding and tracks.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import saccade
from saccade.machine import keep_freed_memory
from saccade.samples import STREET
from saccade.stream.stream import Stream
from saccade.types import Events

PORTION_US = 1_000
WARM_S = 1.0  # that isn't counted


@dataclass(frozen=True)
class Measured:
    latencies_ms: np.ndarray
    cpu_share: float  # of one core

    def row(self) -> str:
        p50, p99 = np.percentile(self.latencies_ms, [50, 99])
        return f"{p50:.1f} | {p99:.1f} | {self.latencies_ms.max():.1f} | {len(self.latencies_ms):,} | {self.cpu_share:.0%}"


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Beside a process that keeps a core busy."""
    if not wanted:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def portions(seconds: float) -> Iterator[tuple[int, Events]]:
    """(end of the portion, its events) on a clock that starts at 0; the recording is repeated."""
    with saccade.open_events(STREET) as reader:
        whole = Events.join(list(reader))
    length_us = -(-(int(whole.t[-1]) + 1) // PORTION_US) * PORTION_US
    edges = np.arange(0, length_us + 1, PORTION_US)
    places = whole.t.searchsorted(edges)
    for end_us in range(PORTION_US, round(seconds * 1e6) + 1, PORTION_US):
        turn, index = divmod(end_us // PORTION_US - 1, len(edges) - 1)
        events = whole[int(places[index]) : int(places[index + 1])]
        yield end_us, Events(events.t + turn * length_us, events.x, events.y, events.p, events.width, events.height)


def measure(weights: str, rate_hz: float, seconds: float) -> Measured:
    stream = Stream(weights, rate_hz, tracker=True, threads=1)
    with saccade.open_events(STREET) as reader:
        stream.push(next(iter(reader))[:5000])  # compiles, and warms up
    stream.reset()
    latencies = []
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for end_us, events in portions(seconds):
        wait_s = began_s + end_us / 1e6 - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        answers = [*stream.push(events), *stream.advance_to(end_us)]
        now_s = time.perf_counter() - began_s
        latencies += [1000 * (now_s - answer.time_us / 1e6) for answer in answers if answer.time_us > WARM_S * 1e6]
    share = (time.process_time() - cpu_s) / (time.perf_counter() - began_s)
    return Measured(np.array(latencies), share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="nano")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each row")
    parser.add_argument("--rates", nargs="+", type=float, default=[50.0, 100.0, 200.0])
    parser.add_argument("--other", nargs="+", choices=["idle", "busy"], default=["idle", "busy"], help="core, while it is measured")
    options = parser.parse_args()
    keep_freed_memory()
    print("| Hz | other core | p50, ms | p99, ms | most, ms | windows | of one core |\n|--:|---|--:|--:|--:|--:|--:|")
    for rate_hz in options.rates:
        for other in options.other:
            with busy(other == "busy"):
                found = measure(options.weights, rate_hz, WARM_S + 60 * options.minutes)
            print(f"| {rate_hz:g} | {other} | {found.row()} |", flush=True)


if __name__ == "__main__":
    main()
