"""A step of `saccade.Stream("nano")`, or of other weights, events to tracks, beside torch and a 512^3 product; CPU time, one thread."""

import time
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

import saccade
from saccade.samples import STREET

REAL = Path(__file__).parents[2] / "shared/data/davis346_cars/cars.aedat4"
PORTION_US = 100_000
UNCOUNTED = 3  # portions at the start


def product_ms(one: torch.Tensor, other: torch.Tensor) -> float:
    began_s = time.process_time()
    for _ in range(10):
        torch.mm(one, other)
    return (time.process_time() - began_s) * 100


def measure(weights: str, path: Path, rate_hz: float, **options: Any) -> tuple[float, float, float]:
    """Medians: ms of a step, ms of it in the network, step as a multiple of the product."""
    with saccade.open_events(path) as reader:
        events = reader.between(reader.start_us, reader.end_us + 1)
    stream = saccade.Stream(weights, rate_hz=rate_hz, threads=1, **options)
    step, network = stream.runtime.step, [0.0]

    def timed(*arguments: Any) -> Any:
        began_s = time.process_time()
        answer = step(*arguments)
        network[0] += time.process_time() - began_s
        return answer

    stream.runtime.step = timed  # type: ignore[method-assign]
    one, other = torch.rand(512, 512), torch.rand(512, 512)
    rows = []
    limits = np.searchsorted(events.t, np.arange(events.t[0], events.t[-1], PORTION_US))
    for first, last in zip(limits[UNCOUNTED:-1], limits[UNCOUNTED + 1 :], strict=True):
        network[0], began_s = 0.0, time.process_time()
        steps = len(stream.push(events[first:last]))
        spent_s = time.process_time() - began_s
        if steps:
            rows.append((spent_s / steps * 1e3, network[0] / steps * 1e3, spent_s / steps * 1e3 / product_ms(one, other)))
    whole, inside, ratio = np.median(rows[UNCOUNTED:], axis=0)
    return float(whole), float(inside), float(ratio)


def main(weights: Annotated[tuple[str, ...], tyro.conf.Positional] = ("nano",)) -> None:
    """WEIGHTS: names or files."""
    torch.set_num_threads(1)
    print("| weights | recording | rate | runtime | ms a step | not the network | / 512^3 product |\n|---|---|--:|---|--:|--:|--:|")
    for name, (path, rate_hz) in product(weights, ((STREET, 200.0), (REAL, 100.0))):
        if not path.exists():
            continue
        for runtime in ("auto", "torch"):
            whole, inside, ratio = measure(name, path, rate_hz, runtime=runtime)
            print(f"| {name} | {path.name} | {rate_hz:g} Hz | {runtime} | {whole:.2f} | {1 - inside / whole:.1%} | {ratio:.2f} |")


if __name__ == "__main__":
    tyro.cli(main)
