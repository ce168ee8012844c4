"""What a GPU needs of a step, shown without one: it is one graph of static shapes, in which nothing waits for a value."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.config import presets
from saccade.model.detector import Detector

WAITING = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "masked_select", "unique")  # the host must know the value, or a shape


class Waiting(TorchDispatchMode):
    """Records the operations after which the host would wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.seen = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        if any(name in str(function) for name in WAITING):
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


def step_of(name: str) -> tuple[Detector, tuple[Any, ...]]:
    torch.manual_seed(0)
    detector = Detector(presets[name]()).eval()
    frames = (torch.rand(1, 1, 20, 64, 64) < 0.02).to(torch.uint8)
    return detector, (frames, detector.initial_state(frames), torch.full((1, 1), 0.1))


def flat(predictions: Any, state: Any) -> list[Tensor]:
    return [*predictions[:3], *(tensor for layer in state for tensor in layer)]


def one_graph(name: str) -> None:
    """`fullgraph` traces the whole step, or raises; its graph is then run operation by operation."""
    detector, inputs = step_of(name)
    waiting, graphs = Waiting(), []

    def watched(graph: Any, _: Any) -> Any:
        graphs.append(graph)

        def run(*values: Any) -> Any:
            with waiting:
                return graph(*values)

        return run

    with torch.no_grad():
        expected = flat(*detector(*inputs))
        found = flat(*torch.compile(detector, backend=watched, fullgraph=True)(*inputs))
    assert len(graphs) == 1
    assert waiting.seen > 100  # operations: it did watch
    assert waiting.found == []
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def compiled(name: str) -> None:
    detector, inputs = step_of(name)
    with torch.no_grad():
        expected = flat(*detector(*inputs))
        found = flat(*torch.compile(detector, fullgraph=True, mode="reduce-overhead")(*inputs))
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-3)


def outside_of_the_tests(call: str) -> None:
    """In a process of its own: the compiler can't see through the tests' shape checks."""
    code = f"from tests.model.test_gpu_ready import *; {call}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert result.returncode == 0, result.stderr[-3000:]


def test_a_step_is_one_graph_in_which_nothing_waits() -> None:
    outside_of_the_tests("[one_graph(name) for name in ('gs5-vit-nano', 's5-vit-nano')]")


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # g++ beside other work
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler, which torch.compile needs on a CPU")
def test_a_step_compiles_as_for_cuda_graphs() -> None:
    outside_of_the_tests("compiled('gs5-vit-nano')")
