"""A streaming step on a GPU, eager and compiled into a CUDA graph: `python -m benchmarks.gpu`; without a GPU it says so.

240 x 304 pixels (256 x 320 padded), one frame of one recording, the state carried. `--device cpu` tries the same on a CPU, where
`reduce-overhead` has no graphs.
"""

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.detector import frames
from saccade.config import presets
from saccade.model.detector import Detector

MODELS = ("s5-vit-b", "rvt-b", "gs5-vit-nano")
WARM = 3  # steps that aren't counted: they compile and record


def step_ms(step: Callable[..., object], detector: Detector, device: str, steps: int) -> float:
    """The median of a step that has ended on the device."""
    frame = frames(1, 1).to(device)
    dt = torch.tensor(1.0, device=device)
    state, taken = detector.initial_state(frame), []
    with torch.inference_mode():
        for _ in range(WARM + steps):
            began_s = time.perf_counter()
            _, state = step(frame, state, dt)  # type: ignore[misc]
            state = tuple(tuple(part.clone() for part in stage) for stage in state)  # a CUDA graph writes over its outputs
            if device != "cpu":
                torch.cuda.synchronize()
            taken.append(1000 * (time.perf_counter() - began_s))
    return sorted(taken[WARM:])[steps // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu: torch finds no GPU; nothing is measured (--device cpu tries the benchmark itself)")
        return
    print("| streaming step | eager, ms | compiled, ms | ratio |\n|---|--:|--:|--:|")
    for name in options.models:
        detector = Detector(presets[name]()).eval().to(options.device)
        plain = step_ms(detector, detector, options.device, options.steps)
        graph = step_ms(torch.compile(detector, fullgraph=True, mode="reduce-overhead"), detector, options.device, options.steps)
        print(f"| {name} | {plain:.2f} | {graph:.2f} | {plain / graph:.2f} |", flush=True)


if __name__ == "__main__":
    main()
