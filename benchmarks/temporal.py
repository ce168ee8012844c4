"""Speed and memory of the temporal layers, as ratios in one run: `python -m benchmarks.temporal`.

The reference is the method of the paper's listing, written plainly: complex numbers, a discretised B for every pixel (its step may
differ), a recursive associative scan over pixels under vmap. Runs are interleaved and the best of several counts.
"""

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.model.temporal.gs5 import GatedS5
from saccade.model.temporal.lstm import LSTM
from saccade.model.temporal.s4 import S4
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5

TRAINING = {"T": 21, "B": 8, "H": 32, "W": 40, "C": 128}
STEP = {"T": 1, "B": 1, "H": 64, "W": 80, "C": 64}
CASES = {"step": (STEP, False), "step with gradients": (STEP, True), "training": (TRAINING, True)}  # shape, forward + backward or forward


def reference(layer: S5, x: Tensor, state: Tensor, dt: float) -> tuple[Tensor, Tensor]:
    """x (pixels, T, H), state (pixels, P) complex. Bilinear, as the listing."""
    eigenvalues = torch.complex(*layer.eigenvalues())
    control, observe = torch.view_as_complex(layer.B), torch.view_as_complex(layer.C)

    def pixel(signal: Tensor, start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        step = scale * layer.log_step.exp()
        denominator = 1 / (1 - step / 2 * eigenvalues)
        decay = denominator * (1 + step / 2 * eigenvalues)
        discretised = (denominator * step)[:, None] * control
        values = torch.vmap(lambda u: discretised @ u)(signal.to(discretised.dtype))
        values = torch.cat([values[:1] + decay * start, values[1:]])  # the listing drops the state; its cost is kept
        states = recursive_scan((decay.expand(values.shape), values))[1]
        return torch.vmap(lambda one: (observe @ one).real)(states) + layer.D * signal, states[-1]

    return torch.vmap(pixel)(x, state, torch.full((len(x),), dt))


def recursive_scan(elements: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    def combine(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return second[0] * first[0], second[0] * first[1] + second[1]

    length = elements[0].shape[0]
    if length < 2:
        return elements
    ends = recursive_scan(combine(tuple(e[0 : length - 1 : 2] for e in elements), tuple(e[1::2] for e in elements)))
    if length == 2:
        return tuple(torch.cat([e[:1], end]) for e, end in zip(elements, ends, strict=True))  # type: ignore[return-value]
    between = combine(tuple(end[: (length - 1) // 2] for end in ends), tuple(e[2::2] for e in elements))
    even = [torch.cat([e[:1], part]) for e, part in zip(elements, between, strict=True)]
    padded = [F.pad(end, (0, 0, 0, 1)) if len(end) < len(part) else end for end, part in zip(ends, even, strict=True)]
    return tuple(torch.stack([part, end], 1).flatten(0, 1)[:length] for part, end in zip(even, padded, strict=True))  # type: ignore[return-value]


def check_reference() -> None:
    """What is compared computes the same."""
    layer, x = S5(8, discretisation="bilinear"), torch.randn(5, 2, 1, 3, 8)
    ours = layer(x, layer.initial_state(x), torch.full((5, 2), 0.5))[0]
    listing = reference(layer, x.flatten(1, 3).transpose(0, 1), torch.zeros(6, 8, dtype=torch.complex64), 0.5)[0]
    torch.testing.assert_close(ours.flatten(1, 3), listing.transpose(0, 1), rtol=1e-4, atol=1e-4)


def subjects(shape: dict[str, int], training: bool) -> dict[str, Callable[[], object]]:
    """Name -> one call: forward + backward if training, else one streaming step without gradients."""
    torch.manual_seed(0)
    dims, channels = [shape[axis] for axis in "TBHWC"], shape["C"]
    x, dt = torch.randn(dims), torch.ones(dims[:2])
    pixels = x.flatten(1, 3).transpose(0, 1).contiguous()
    layers = {
        "S5, P = d": S5(channels, discretisation="bilinear"),
        "S5, P = d/2": S5(channels, discretisation="bilinear", spectrum="half"),
        "LSTM": LSTM(channels),
        "gated S5": GatedS5(channels),
        "S4D": S4D(channels),
        "S4": S4(channels),
    }
    states = {name: layer.initial_state(x) for name, layer in layers.items()}
    listing_state = torch.zeros(len(pixels), channels, dtype=torch.complex64)
    weights = {p: (torch.randn(2 * p, channels) / 16, torch.randn(channels, 2 * p) / 16) for p in (channels, channels // 2)}
    x.requires_grad_(training)
    pixels.requires_grad_(training)

    upstream = {x.shape: torch.randn_like(x), pixels.shape: torch.randn_like(pixels)}

    def finish(y: Tensor, parameters: list[Tensor]) -> None:
        if training:
            torch.autograd.grad(y, parameters, upstream[y.shape])

    def layer_call(name: str) -> Callable[[], object]:
        layer = layers[name]
        return lambda: finish(layer(x, states[name], dt)[0], [x, *layer.parameters()])

    def two_products(order: int) -> Callable[[], object]:
        into, out = (weight.requires_grad_(training) for weight in weights[order])
        return lambda: finish(F.linear(F.linear(x, into), out), [x, into, out])

    listing = layers["S5, P = d"]
    return {
        "listing": lambda: finish(reference(listing, pixels, listing_state, 1.0)[0], [pixels, *listing.parameters()]),
        **{name: layer_call(name) for name in layers},
        "two GEMMs, P = d": two_products(channels),
        "two GEMMs, P = d/2": two_products(channels // 2),
    }


def best_times(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of this process, best of interleaved rounds; others on the machine disturb that less than the clock on the wall."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds + 1):  # the first warms up, and is enough for what takes many seconds
        for name, call in calls.items():
            if best[name] > 5000 and best[name] < float("inf"):
                continue
            began = time.process_time()
            call()
            best[name] = min(best[name], 1000 * (time.process_time() - began))
    return best


def peak_megabytes(shape_name: str, name: str) -> float:
    """Growth of the peak resident memory by one call, in a process of its own."""
    code = f"from benchmarks.temporal import measure_peak; measure_peak({shape_name!r}, {name!r})"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def measure_peak(shape_name: str, name: str) -> None:
    torch.set_num_threads(1)
    shape, training = CASES[shape_name]
    small = {**shape, "B": 1, "H": 2, "W": 2}
    with torch.set_grad_enabled(training):
        subjects(small, training)[name]()  # compiles
        call = subjects(shape, training)[name]
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # pages that were freed but kept would hide what the call needs
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = peak_resident()
        call()
    print(peak_resident() - before)


def peak_resident() -> float:
    """Megabytes; unlike getrusage's, this peak isn't inherited from the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def bandwidth_gigabytes() -> float:
    """Reading and writing a large tensor in place."""
    block = torch.zeros(64_000_000)
    times = best_times({"scale": lambda: block.mul_(1.0)}, 5)
    return 2 * block.nbytes / times["scale"] / 1e6


def print_limits(times: dict[str, float], shape: dict[str, int], training: bool, bandwidth: float) -> None:
    """What S5 spends beyond its GEMMs, against the traffic that it can't avoid at the speed of memory."""
    rows = shape["T"] * shape["B"] * shape["H"] * shape["W"]
    for order, name in ((shape["C"], "P = d"), (shape["C"] // 2, "P = d/2")):
        # Forward: the states are read and written, then y and u for D u. Backward: the flow, the states, and D's two gradients.
        passes_of_states, passes_of_features = (5, 8) if training else (3, 3)
        moved = 4 * rows * (passes_of_states * 2 * order + passes_of_features * shape["C"]) / 1e6
        beyond = times[f"S5, {name}"] - times[f"two GEMMs, {name}"]
        print(f"\nS5, {name}: {beyond:.2f} ms beyond two GEMMs; scan and D move {moved:.0f} MB, {moved / bandwidth:.2f} ms at memory speed")


def report(shape_name: str, rounds: int, with_memory: bool, bandwidth: float) -> None:
    shape, training = CASES[shape_name]
    with torch.set_grad_enabled(training):
        calls = subjects(shape, training)
        times = best_times(calls, rounds)
    rows = shape["T"] * shape["B"] * shape["H"] * shape["W"]
    print(f"\n### {shape_name}: T = {shape['T']}, {shape['B']} x {shape['H']} x {shape['W']} pixels, {shape['C']} channels\n")
    print("| | ms | listing / this | this / its two GEMMs | GFLOP/s of the GEMMs | peak MB | listing / this |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    memory = {name: peak_megabytes(shape_name, name) for name in calls} if with_memory else {}
    for name, spent in times.items():
        order = shape["C"] // 2 if "d/2" in name else shape["C"]
        products = times["two GEMMs, P = d/2" if "d/2" in name else "two GEMMs, P = d"]
        operations = rows * shape["C"] * 2 * order * 2 * 2 * (3 if training else 1)
        cells = [f"{spent:.2f}", f"{times['listing'] / spent:.1f}", f"{spent / products:.2f}" if name.startswith("S5") else ""]
        cells += [f"{operations / spent / 1e6:.0f}" if name.startswith(("S5", "two")) else ""]
        cells += [f"{memory[name]:.0f}", f"{memory['listing'] / memory[name]:.1f}"] if memory and memory[name] > 0 else ["", ""]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print_limits(times, shape, training, bandwidth)
    print(f"\nLSTM / S5: {times['LSTM'] / times['S5, P = d']:.2f} (P = d), {times['LSTM'] / times['S5, P = d/2']:.2f} (P = d/2)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    check_reference()
    bandwidth = bandwidth_gigabytes()
    print(f"one thread; memory {bandwidth:.1f} GB/s (read + write)")
    for name in CASES:
        report(name, options.rounds * (1 if name == "training" else 20), not options.no_memory, bandwidth)


if __name__ == "__main__":
    main()
