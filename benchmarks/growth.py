"""How the cost of a step grows: with pixels, rate, events, states and objects: `python -m benchmarks.growth`, a few CPU minutes.

A stream of the shipped `nano`, with the runtime that it takes by itself, on one thread. Milliseconds are of this process, the median of
several steps after a few that warm up. A slope is that of the logarithms (1 = in proportion), fitted over the upper half of the range,
where fixed costs weigh less. Writes growth.md and growth.png into --out.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import saccade
from benchmarks.stream import Timed
from saccade.events.write import write_events
from saccade.export.runtime import Runtime
from saccade.files import replacing
from saccade.machine import keep_freed_memory
from saccade.stream.stream import Stream
from saccade.types import Events, Stepping

SIZES = ((64, 64), (128, 128), (160, 128), (304, 240), (640, 480), (1280, 720))
RATES_HZ = (20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
EVENT_RATES = (0, 100_000, 1_000_000, 5_000_000, 20_000_000, 50_000_000)
OBJECTS = (0, 1, 10, 50, 100, 300)
SMALL = (160, 128)
WARM = 3  # steps that aren't counted


@dataclass(frozen=True)
class Cost:
    """Milliseconds per step, and of them those of the network; megabytes of kept states."""

    all_ms: float
    network_ms: float
    states_mb: float = 0.0


@dataclass(frozen=True)
class Curve:
    title: str
    axis: str
    ideal: float  # slope
    lines: dict[str, list[tuple[float, float]]]  # name -> (x, ms)

    def slope(self, name: str) -> float:
        """Over the upper half of x, by least squares."""
        points = np.log(np.array([(x, ms) for x, ms in self.lines[name] if x > 0 and ms > 0]))
        upper = points[points[:, 0] >= np.median(points[:, 0])]
        return float(np.polyfit(upper[:, 0], upper[:, 1], 1)[0]) if len(upper) > 1 else float("nan")


def random_events(size: tuple[int, int], events_per_second: float, seconds: float) -> Events:
    """Evenly spread; times in order."""
    random, count = np.random.default_rng(0), max(int(events_per_second * seconds), 2)
    t = np.sort(random.integers(0, round(seconds * 1e6), count))
    t[0], t[-1] = 0, round(seconds * 1e6) - 1  # the stream begins and ends with them
    x, y = (random.integers(0, side, count).astype(np.uint16) for side in size)
    return Events(t, x, y, random.random(count) < 0.5, *size)


def cost(runtime: Runtime, size: tuple[int, int], rate_hz: float, events_per_second: float, steps: int, **options: Any) -> Cost:
    """Of a stream that gets the events of each period in one portion."""
    timed = Timed(runtime)
    stream = Stream(timed, rate_hz, width=size[0], height=size[1], **options)
    events = random_events(size, events_per_second, (WARM + steps + 1) / rate_hz + 0.05)
    found = []
    for end_us in np.arange(1, int(events.t[-1] * rate_hz / 1e6) + 1) * 1e6 / rate_hz:
        first, last = events.t.searchsorted([end_us - 1e6 / rate_hz, end_us])
        began, busy_ms = time.process_time(), timed.busy_ms
        done = len(stream.push(events[int(first) : int(last)])) + len(stream.advance_to(int(end_us)))
        if done:
            found.append((1000 * (time.process_time() - began) / done, (timed.busy_ms - busy_ms) / done))
        if len(found) == WARM + steps:
            break
    medians = np.median(found[WARM:], axis=0)
    return Cost(float(medians[0]), float(medians[1]), stream.memory_bytes / 1e6)


class Scripted:
    """A runtime that sees COUNT objects wherever it looks: what decoding and tracking cost."""

    def __init__(self, runtime: Runtime, count: int) -> None:
        self.config, self.count = runtime.config, count
        self.initial_state, self.prepare = runtime.initial_state, runtime.prepare
        self.state_to_arrays, self.state_from_arrays = runtime.state_to_arrays, runtime.state_from_arrays

    def step(self, frame: np.ndarray, state: Any, dt: float) -> tuple[np.ndarray, Any]:
        height, width = frame.shape[-2:]
        cells = sum((height // stride) * (width // stride) for stride in (8, 16, 32))
        rows = np.zeros((cells, 5 + len(self.config.classes)), np.float32)
        seen, across = np.arange(self.count), 20  # 300 small boxes beside each other, no two of which overlap
        rows[: self.count, 0], rows[: self.count, 1] = seen % across * 8 + 4, seen // across * 8 + 4
        rows[: self.count, 2:4], rows[: self.count, 4:6] = 6, 0.99
        return rows, state


def over_pixels(runtime: Runtime, steps: int) -> Curve:
    costs = [(width * height, cost(runtime, (width, height), 100.0, 12.0 * width * height, steps, fit="pad")) for width, height in SIZES]
    lines = {"network": [(x, one.network_ms) for x, one in costs], "all else": [(x, one.all_ms - one.network_ms) for x, one in costs]}
    return Curve("pixels, 12 events a second each, 100 Hz", "pixels", 1.0, lines)


def over_rates(runtime: Runtime, steps: int) -> tuple[Curve, dict[str, float]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    states_mb = {}
    for stepping in ("direct", "interleaved"):
        kind: Stepping = stepping  # type: ignore[assignment]
        costs = [(rate_hz, cost(runtime, SMALL, rate_hz, 250_000, max(steps, round(rate_hz / 10)), stepping=kind)) for rate_hz in RATES_HZ]
        lines[stepping] = [(x, one.all_ms) for x, one in costs]
        states_mb[stepping] = costs[-1][1].states_mb
    return Curve("rate, 160 x 128", "Hz", 0.0, lines), states_mb


def over_events(runtime: Runtime, steps: int) -> Curve:
    """At 20 Hz: the most events a step."""
    costs = [(float(rate), cost(runtime, (640, 480), 20.0, rate, steps)) for rate in EVENT_RATES]
    lines = {"network": [(x, one.network_ms) for x, one in costs], "all else": [(x, one.all_ms - one.network_ms) for x, one in costs]}
    events = random_events((640, 480), 4_000_000, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("h5", "dat"):
            path = Path(folder) / f"a.{suffix}"
            write_events(events, path)
            ms = best(lambda path=path: read(path), 3) / len(events)
            lines[f"reading .{suffix}"] = [(rate, ms * rate / 20.0) for rate in map(float, EVENT_RATES) if rate]
    return Curve("events a second, 640 x 480, 20 Hz", "events/s", 1.0, lines)


def over_objects(runtime: Runtime, steps: int) -> Curve:
    costs = [(float(count), cost(Scripted(runtime, count), SMALL, 100.0, 250_000, max(steps, 20), tracker=True)) for count in OBJECTS]
    return Curve(
        "objects in view, with tracks", "objects", 1.0, {"all but the network": [(x, one.all_ms - one.network_ms) for x, one in costs]}
    )


def read(path: Path) -> int:
    with saccade.open_events(path) as reader:
        return sum(len(events) for events in reader)


def best(call: Callable[[], object], rounds: int) -> float:
    """Milliseconds of this process."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        found.append(1000 * (time.process_time() - began))
    return min(found)


def crossing(curve: Curve, name: str) -> str:
    """From which event rate on this line costs more than the network."""
    network = dict(curve.lines["network"])
    above = [x for x, ms in curve.lines[name] if x in network and ms > network[x]]
    return f"from {min(above) / 1e6:g} M events/s on" if above else f"not up to {EVENT_RATES[-1] / 1e6:g} M events/s"


def tables(curves: list[Curve], states_mb: dict[str, float]) -> Iterator[str]:
    for curve in curves:
        grid = sorted({x for points in curve.lines.values() for x, _ in points})
        yield f"\n### Milliseconds a step over {curve.title}\n"
        yield f"| {curve.axis} | {' | '.join(f'{x:,.0f}' for x in grid)} | slope | ideal |"
        yield "|---" + "|--:" * (len(grid) + 2) + "|"
        for name, points in curve.lines.items():
            values = dict(points)
            cells = " | ".join(f"{values[x]:.3g}" if x in values else "" for x in grid)
            yield f"| {name} | {cells} | {curve.slope(name):.2f} | {curve.ideal:g} |"
        if "network" in curve.lines and curve.axis == "events/s":
            yield "\nCosts more than the network: " + "; ".join(
                f"{name} {crossing(curve, name)}" for name in curve.lines if name != "network"
            )
    yield "\nStates kept at 1000 Hz: " + ", ".join(f"{name} {size:.1f} MB" for name, size in states_mb.items())


def plot(curves: list[Curve], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(curves), 3.4), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(curves)), curves, strict=True):
        for name, points in curve.lines.items():
            x, ms = np.array([point for point in points if point[0] > 0]).T
            (line,) = axes.plot(x, ms, marker="o", markersize=3, label=f"{name}, slope {curve.slope(name):.2f}")
            axes.plot(x, ms[-1] * (x / x[-1]) ** curve.ideal, ":", color=line.get_color(), linewidth=1)  # ideal, through the last point
        axes.set(xscale="log", yscale="log", xlabel=curve.axis, ylabel="ms a step", title=curve.title)
        low, high = axes.get_ylim()
        if high < 10 * low:  # a decade at least: a constant cost looks constant
            axes.set_ylim((low * high / 10) ** 0.5, (10 * low * high) ** 0.5)
        axes.legend(fontsize=7)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="nano")
    parser.add_argument("--steps", type=int, default=8, help="that are counted, of each point")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    logging.getLogger("saccade").setLevel(logging.ERROR)  # sizes far from the trained one are the point here
    torch.set_num_threads(1)
    keep_freed_memory()
    runtime = Stream(options.weights, threads=1).runtime
    rates, states_mb = over_rates(runtime, options.steps)
    curves = [
        over_pixels(runtime, options.steps),
        rates,
        over_events(runtime, options.steps),
        over_objects(runtime, options.steps),
    ]
    text = "\n".join(tables(curves, states_mb))
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    with replacing(options.out / "growth.md") as temporary:
        temporary.write_text(f"# How cost grows\n\n`python -m benchmarks.growth`: {options.weights}, one thread, CPU time.\n{text}\n")
    plot(curves, options.out / "growth.png")


if __name__ == "__main__":
    main()
