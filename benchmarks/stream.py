"""Time of a step of a stream from events to boxes, and what of it isn't the network: `python -m benchmarks.stream`.

The Gen1 clip goes through `Stream.push` in portions of 2 ms, at 20 and 200 Hz, on every runtime that is installed (auto: what a stream
takes by itself); whatever isn't spent inside the runtime's step is cutting, frame, boxes and counting. Runtimes and a product of two
512 x 512 matrices take turns, and the best of several rounds counts, in CPU time: the ratio of both holds on a busy machine. One thread.
Where a virtual machine offers AMX and refuses it, int8 in OpenVINO wants ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import saccade
from saccade.config import presets
from saccade.export.graph import export_detector
from saccade.export.quantise import quantise_onnx
from saccade.export.runtime import Runtime, RuntimeName, open_runtime
from saccade.model.detector import Detector
from saccade.representation.canvas import Canvas
from saccade.stream.stream import Stream
from saccade.types import Events, InputError, Stepping

CLIP = Path(__file__).parents[2] / "shared/data/gen1/clip_td.dat"
MODELS = ("s5-vit-nano", "s5-vit-s", "s5-vit-b")
# What computes the network, and the end of the file that it reads
RUNTIMES: dict[str, tuple[RuntimeName, str]] = {
    "auto": ("auto", ""),
    "torch": ("torch", ""),
    "onnx": ("onnxruntime", ".onnx"),
    "openvino": ("openvino", ".onnx"),
    "package": ("package", ".pt2"),
    "onnx-int8": ("onnxruntime", "-int8.onnx"),
    "openvino-int8": ("openvino", "-int8.onnx"),
}
CALIBRATION = 40  # frames
PORTION_US = 2_000
WIDTH, HEIGHT = 304, 240
SMALL = (160, 128)
PRODUCT, PRODUCTS = 512, 10


class Timed:
    """A runtime that knows how long it was at work, in milliseconds of this process."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.config = runtime, runtime.config
        self.initial_state, self.prepare = runtime.initial_state, runtime.prepare
        self.state_to_arrays, self.state_from_arrays = runtime.state_to_arrays, runtime.state_from_arrays
        self.busy_ms = 0.0

    def step(self, frame: np.ndarray, state: Any, dt: float) -> tuple[np.ndarray, Any]:
        began = time.process_time()
        result = self.runtime.step(frame, state, dt)
        self.busy_ms += 1000 * (time.process_time() - began)
        return result


@dataclass(frozen=True)
class Measured:
    """Milliseconds per step."""

    all_ms: float
    network_ms: float

    @property
    def rest(self) -> float:
        return 1 - self.network_ms / self.all_ms


def events() -> Events:
    """Of the clip, or as many random ones where it isn't there."""
    if CLIP.exists():
        with saccade.open_events(CLIP) as reader:
            return Events.join(list(reader))
    print(f"{CLIP} isn't there: random events instead")
    random = np.random.default_rng(0)
    t = np.sort(random.integers(0, 2_000_000, 400_000))
    return Events(t, random.integers(0, WIDTH, len(t)).astype(np.uint16), random.integers(0, HEIGHT, len(t)).astype(np.uint16),
                  random.random(len(t)) < 0.5, WIDTH, HEIGHT)  # fmt: skip


def portions(whole: Events) -> list[Events]:
    edges = np.arange(int(whole.t[0]), int(whole.t[-1]) + PORTION_US, PORTION_US)
    places = whole.t.searchsorted(edges).tolist()
    return [whole[first:last] for first, last in pairwise(places)]


def runtimes(name: str, canvas: Canvas, wanted: list[str], whole: Events, folder: Path) -> Iterator[tuple[str, Timed]]:
    torch.manual_seed(0)
    detector = Detector(presets[name]()).eval()
    for one in wanted:
        runtime, ending = RUNTIMES[one]
        try:
            path = folder / f"{name}-{canvas.width}{ending}"
            if ending and not path.exists():
                write(detector, path, canvas, whole)
            yield one, Timed(open_runtime(path if ending else detector, runtime, threads=1, trust=True))
        except (InputError, ImportError) as error:
            print(f"{name} on {one}: {error}")


def write(detector: Detector, path: Path, canvas: Canvas, whole: Events) -> None:
    if not path.name.endswith("-int8.onnx"):
        export_detector(detector, path, height=canvas.height, width=canvas.width, compiled=path.suffix == ".pt2")
        return
    exact = path.with_name(path.name.replace("-int8", ""))
    if not exact.exists():
        write(detector, exact, canvas, whole)
    frames = np.stack([frame.data for frame in saccade.frames(whole, rate_hz=CALIBRATION, canvas=canvas)])
    quantise_onnx(exact, path, frames)


def round_of(timed: Timed, parts: list[Events], rate_hz: float, canvas: Canvas, stepping: Stepping, steps: int) -> Measured:
    """STEPS of a stream, without the first ones, which fill its window."""
    stream = Stream(timed, rate_hz, canvas=canvas, stepping=stepping, tracker=False)
    left = iter(parts)
    while stream.counters.steps < 2:
        stream.push(next(left))
    began, busy_ms, before = time.process_time(), timed.busy_ms, stream.counters.steps
    done = 0
    while done < steps and (part := next(left, None)) is not None:
        done += len(stream.push(part))
    count = stream.counters.steps - before
    return Measured(1000 * (time.process_time() - began) / count, (timed.busy_ms - busy_ms) / count)


def product_ms() -> float:
    """CPU time of a float32 product of two PRODUCT x PRODUCT matrices."""
    matrix = torch.ones(PRODUCT, PRODUCT)
    began = time.process_time()
    for _ in range(PRODUCTS):
        matrix @ matrix
    return 1000 * (time.process_time() - began) / PRODUCTS


def report(name: str, rate_hz: float, canvas: Canvas, whole: Events, options: argparse.Namespace, folder: Path) -> dict[str, Measured]:
    parts = portions(whole)
    opened = dict(runtimes(name, canvas, options.runtimes, whole, folder))
    best: dict[str, Measured] = {}
    products_ms = []
    for _ in range(options.rounds):
        products_ms.append(product_ms())
        for runtime, timed in opened.items():
            one = round_of(timed, parts, rate_hz, canvas, options.stepping, options.steps)
            best[runtime] = min(best.get(runtime, one), one, key=lambda each: each.all_ms)
    for runtime, one in best.items():
        ratio = f"{best['torch'].all_ms / one.all_ms:.2f}" if "torch" in best else ""
        cells = (
            f"{name}, {canvas.width} x {canvas.height}",
            f"{rate_hz:g}",
            runtime,
            f"{one.all_ms:.2f}",
            f"{one.network_ms:.2f}",
            f"{one.all_ms / min(products_ms):.2f}",
            f"{one.rest:.1%}",
            ratio,
        )
        print(f"| {' | '.join((*cells, f'{1000 / rate_hz / one.all_ms:.2f}'))} |", flush=True)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES), choices=list(RUNTIMES))
    parser.add_argument("--rates", nargs="+", type=float, default=[20.0, 200.0])
    parser.add_argument("--stepping", choices=("direct", "interleaved"), default="direct")
    parser.add_argument("--steps", type=int, default=20, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole = events()
    print(
        "| model, canvas | Hz | runtime | ms a step | network, ms | / 512^3 product | not the network | torch / this | times real time |\n"
        "|---|--:|---|--:|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as name:
        for model in options.models:
            canvas = Canvas.pad(WIDTH, HEIGHT, presets[model]().backbone.multiple)
            for rate_hz in options.rates:
                report(model, rate_hz, canvas, whole, options, Path(name))
        if "s5-vit-nano" in options.models:
            for rate_hz in (100.0, 200.0):
                report("s5-vit-nano", rate_hz, Canvas.scale_to(WIDTH, HEIGHT, SMALL), whole, options, Path(name))


if __name__ == "__main__":
    main()
