"""Time of a streaming step and of a training step, whose share is whose, and how near the machine's peak: `python -m benchmarks.detector`.

240 x 304 pixels (256 x 320 padded). A streaming step is one frame of one recording; a training step is 2 recordings x 5 frames, of which
the last is labelled, as one in five is in Gen1: forward, loss, backward, Adam. Runs are interleaved and the best of several counts.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.temporal import best_times
from saccade.config import presets
from saccade.detection.boxes import Target
from saccade.detection.loss import loss
from saccade.machine import keep_freed_memory
from saccade.model.backbone import Stage
from saccade.model.detector import Detector

MODELS = ("s5-vit-b", "s5-vit-s", "rvt-b")
Inputs = tuple[object, ...]


def frames(steps: int, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    active = torch.rand(steps, batch, 1, 240, 304, generator=generator) < 0.2
    return (torch.randint(0, 4, (steps, batch, 20, 240, 304), generator=generator) * active).to(torch.uint8)


def streaming_step(detector: nn.Module, state: object) -> Callable[[], object]:
    frame = frames(1, 1)

    @torch.inference_mode()
    def step() -> object:
        return detector(frame, state, 1.0)

    return step


def training_step(detector: nn.Module, state: object, precision: torch.dtype | None = None) -> Callable[[], object]:
    clip, labelled = frames(5, 2), torch.zeros(5, 2, dtype=torch.bool)
    labelled[-1] = True
    box = Target(torch.tensor([[30.0, 40.0, 90.0, 120.0], [150.0, 60.0, 220.0, 110.0]]), torch.tensor([0, 1]))
    optimiser = torch.optim.AdamW(detector.parameters(), lr=1e-5)

    def step() -> object:
        with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
            predictions, _ = detector(clip, state, 1.0, labelled)
            total = loss(predictions, [box, box]).total
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        return total

    return step


def parts(detector: Detector) -> dict[str, list[nn.Module]]:
    stages: list[Stage] = list(detector.backbone.stages)
    return {
        "downsampling": [module for stage in stages for module in (stage.downsample, stage.norm)],
        "spatial mixing": [stage.mixing for stage in stages],
        "memory": [stage.memory for stage in stages],  # type: ignore[list-item]
        "neck and head": [detector.neck, detector.head],
    }


def shares(detector: Detector, step: Callable[[], object], backward: bool) -> dict[str, Callable[[], object]]:
    """Each part alone on the inputs that the step gives it, forward and, in training, backward."""
    seen: dict[nn.Module, Inputs] = {}
    modules = [module for group in parts(detector).values() for module in group]
    hooks = [module.register_forward_pre_hook(lambda module, inputs: seen.update({module: inputs})) for module in modules]
    step()
    for hook in hooks:
        hook.remove()

    def alone(group: list[nn.Module]) -> Callable[[], object]:
        inputs = [tuple(_fresh(value, backward) for value in seen[module]) for module in group]

        def run() -> None:
            for module, values in zip(group, inputs, strict=True):
                with torch.set_grad_enabled(backward):
                    outputs = _floats(module(*values))
                if backward:
                    outputs = [output for output in outputs if output.requires_grad][: len(outputs) if module is detector.head else 3]
                    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])

        return run

    return {name: alone(group) for name, group in parts(detector).items()}


def _fresh(value: object, backward: bool) -> object:
    if isinstance(value, tuple):
        return tuple(_fresh(item, backward) for item in value)
    if isinstance(value, Tensor) and value.is_floating_point():
        copy = value.detach().clone()
        return copy.requires_grad_(backward and value.requires_grad)
    return value


def _floats(value: object) -> list[Tensor]:
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in _floats(item)]
    return [value] if isinstance(value, Tensor) and value.is_floating_point() else []


def peak_gigaflops(rounds: int) -> float:
    square = torch.randn(2048, 2048)
    return 2 * 2048**3 / best_times({"gemm": lambda: square @ square}, rounds)["gemm"] / 1e6


def operations(step: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops() / 1e9


def build(name: str, training: bool) -> Detector:
    torch.manual_seed(0)
    detector = Detector(presets[name]())
    return detector.train(training)


def report(models: Sequence[str], training: bool, rounds: int, compiled: bool) -> None:
    detectors = {name: build(name, training) for name in dict.fromkeys([*models, "rvt-b"])}
    make = training_step if training else streaming_step
    states = {name: detector.initial_state(frames(1, 2 if training else 1)) for name, detector in detectors.items()}
    steps = {name: make(detector, states[name]) for name, detector in detectors.items()}
    calls: dict[str, Callable[[], object]] = dict(steps)
    for name, detector in detectors.items():
        calls |= {f"{name}: {part}": call for part, call in shares(detector, steps[name], training).items()}
        if compiled:
            detector_compiled, began = torch.compile(build(name, training)), time.perf_counter()
            calls[f"{name}, compiled"] = make(detector_compiled, states[name])
            calls[f"{name}, compiled"]()
            print(f"compiled {name} in {time.perf_counter() - began:.0f} s", flush=True)
    times = best_times(calls, rounds)
    peak = peak_gigaflops(rounds)
    names = list(parts(detectors["rvt-b"]))
    print(f"\n### {'training step, 2 x 5 frames' if training else 'streaming step'}; a 2048 x 2048 GEMM runs at {peak:.0f} GFLOP/s\n")
    columns = [
        "",
        "ms",
        "rvt-b / this",
        *names,
        "GFLOP",
        "of the GEMM's speed",
        *(["compiled, ms", "eager / compiled"] if compiled else []),
    ]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for name, step in steps.items():
        cells = [f"{times[name]:.0f}", f"{times['rvt-b'] / times[name]:.2f}"]
        cells += [f"{times[f'{name}: {part}'] / times[name]:.0%}" for part in names]
        work = operations(step)
        cells += [f"{work:.1f}", f"{work / times[name] * 1000 / peak:.0%}"]
        if compiled:
            cells += [f"{times[f'{name}, compiled']:.0f}", f"{times[name] / times[f'{name}, compiled']:.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="time torch.compile, too; compiling takes minutes for each model")
    parser.add_argument("--models", nargs="+", default=MODELS, help="rvt-b is what the others are compared with")
    parser.add_argument("--steps", choices=("streaming", "training", "both"), default="both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as in training
    for name, training in (("streaming", False), ("training", True)):
        if arguments.steps in (name, "both"):
            report(arguments.models, training, arguments.rounds, arguments.compile)


if __name__ == "__main__":
    main()
