"""What a CPU runs by default is the detector: the same boxes as torch's, states that are values, torch where there is no graph."""

import logging
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade.config import MemoryConfig, presets
from saccade.export.fast import GraphRuntime, GraphState, SizedGraph
from saccade.export.runtime import open_runtime
from saccade.export.stem import Stem
from saccade.export.step import TorchRuntime, compare
from saccade.model.detector import Detector
from saccade.samples import shipped_weights
from saccade.types import InputError
from saccade.weights.load import load_detector
from tests.stream.streams import detector

HEIGHT, WIDTH = 60, 96  # the height isn't a multiple of 32: padded
DT = (1.0, 1.0, 0.1, 4.0, 0.02, 0.5)


def frames(count: int, mean: float = 0.02) -> np.ndarray:
    return np.random.default_rng(0).poisson(mean, (count, 20, HEIGHT, WIDTH)).astype(np.uint8)


@pytest.fixture(scope="module")
def nano() -> Detector:
    return load_detector("nano")


@pytest.mark.parametrize("name", ["nano", "small", "rvt-nano", "s5-vit-nano", "gs5-vit-nano", "s4d-vit-nano", "s4-vit-nano"])
def test_a_graph_is_the_detector_at_every_rate(name: str) -> None:
    built = load_detector(name) if name in shipped_weights() else detector(name)
    difference = compare(SizedGraph(built, 64, 96), TorchRuntime(built), 64, 96, DT)
    assert difference.box_px < 1e-3
    assert difference.score < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s5-vit-t", "s5-convnext-b", "rvt-t"])
def test_a_graph_is_the_detector_for_larger_presets(name: str) -> None:
    built = detector(name)
    assert compare(SizedGraph(built, 64, 96), TorchRuntime(built), 64, 96, DT).is_small


def test_the_default_is_a_graph_without_a_note(nano: Detector, caplog: pytest.LogCaptureFixture) -> None:
    runtime = open_runtime(nano)
    _, state = runtime.step(frames(1)[0], runtime.initial_state(HEIGHT, WIDTH), 1.0)
    assert isinstance(state, GraphState)
    assert not caplog.records


def test_a_state_is_a_value(nano: Detector) -> None:
    """Two frames may continue from one state, as interleaved stepping lets them; steps between change nothing."""
    graph = SizedGraph(nano, HEIGHT, WIDTH)
    first, second, third = frames(3)
    _, state = graph.step(first, graph.initial_state(HEIGHT, WIDTH), 1.0)
    before = graph.state_to_arrays(state)
    rows, after = graph.step(second, state, 0.1)
    graph.step(third, after, 0.3)
    again, _ = graph.step(second, state, 0.1)
    np.testing.assert_array_equal(again, rows)
    np.testing.assert_equal(graph.state_to_arrays(state), before)
    remembered = graph.remember(second, state, 0.1)
    for name, array in graph.state_to_arrays(remembered).items():
        np.testing.assert_allclose(array, graph.state_to_arrays(after)[name], atol=1e-5)


def test_a_state_goes_on_in_torch_and_back(nano: Detector) -> None:
    fast, slow = open_runtime(nano), open_runtime(nano, "torch")
    first, second = frames(2)
    _, state = fast.step(first, fast.initial_state(HEIGHT, WIDTH), 1.0)
    arrays = fast.state_to_arrays(state)
    expected, _ = fast.step(second, state, 0.5)
    for runtime in (slow, fast):
        rows, _ = runtime.step(second, runtime.state_from_arrays(arrays), 0.5)
        np.testing.assert_allclose(rows, expected, atol=1e-3)
    with pytest.raises(InputError, match="of another model"):
        fast.state_from_arrays({"state_0_0": arrays["state_0_0"]})


@pytest.mark.parametrize("name", ["s4d-vit-nano", "s4-vit-nano"])
def test_states_of_s4_go_to_torch_and_back(name: str) -> None:
    built = detector(name)
    graph, slow = SizedGraph(built, HEIGHT, WIDTH), TorchRuntime(built)
    first, second = frames(2)
    _, state = graph.step(first, graph.initial_state(HEIGHT, WIDTH), 1.0)
    arrays = graph.state_to_arrays(state)
    assert all(np.abs(array).max() > 0 for array in arrays.values())
    expected, _ = slow.step(second, slow.state_from_arrays(arrays), 0.5)
    for again in (state, graph.state_from_arrays(arrays)):
        np.testing.assert_allclose(graph.step(second, again, 0.5)[0], expected, atol=1e-3)


def test_two_sizes_have_a_graph_each(nano: Detector) -> None:
    runtime = open_runtime(nano)
    for height, width in ((64, 64), (HEIGHT, WIDTH), (64, 64)):
        frame = np.ones((20, height, width), np.uint8)
        rows, _ = runtime.step(frame, runtime.initial_state(height, width), 1.0)
        slow = TorchRuntime(nano)
        np.testing.assert_allclose(rows, slow.step(frame, slow.initial_state(height, width), 1.0)[0], atol=1e-3)


def test_torch_computes_what_has_no_graph_with_one_note(caplog: pytest.LogCaptureFixture) -> None:
    config = presets["rvt-nano"]()
    built = Detector(replace(config, backbone=replace(config.backbone, memory=MemoryConfig(depthwise=True)))).eval()
    with caplog.at_level(logging.WARNING, "saccade"):
        runtime, expected = open_runtime(built, threads=1), TorchRuntime(built)
        for size in ((32, 32), (32, 64)):
            frame = np.ones((20, *size), np.uint8)
            rows, _ = runtime.step(frame, runtime.initial_state(*size), 1.0)
            np.testing.assert_array_equal(rows, expected.step(frame, expected.initial_state(*size), 1.0)[0])
    assert [record.getMessage() for record in caplog.records] == [
        "torch computes rvt-nano, which onnxruntime would do faster (no graph for a memory of LSTM)"
    ]
    with pytest.raises(InputError, match="no graph for a memory of LSTM"):
        open_runtime(built, "onnxruntime").initial_state(32, 32)


@pytest.mark.parametrize(("name", "why"), [("red-nano", "mixing by SqueezeExcite"), ("get-nano", "mixing by GroupedWindowAndGrid")])
def test_torch_computes_the_baselines_of_the_paper(name: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "saccade"):
        runtime = open_runtime(detector(name), threads=1)
        runtime.step(np.ones((20, 32, 64), np.uint8), runtime.initial_state(32, 64), 1.0)
    assert [record.getMessage() for record in caplog.records] == [
        f"torch computes {name}, which onnxruntime would do faster (no graph for {why})"
    ]


def test_a_graph_that_is_not_known_to_be_equal_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    built = detector("gs5-vit-nano")
    with torch.no_grad():
        built.head.scales[0].boxes.bias.fill_(float("nan"))
    assert isinstance(GraphRuntime(built, threads=1).chosen(64, 96), TorchRuntime)
    assert "its boxes would be up to nan px" in caplog.text


def test_a_detector_that_is_trained_on_is_noticed() -> None:
    built = detector("gs5-vit-nano")
    runtime = open_runtime(built)
    frame = frames(1)[0]
    before, _ = runtime.step(frame, runtime.initial_state(HEIGHT, WIDTH), 1.0)
    with torch.no_grad():
        built.head.scales[0].objectness.bias += 1
    after, _ = runtime.step(frame, runtime.initial_state(HEIGHT, WIDTH), 1.0)
    assert np.abs(after[:, 4] - before[:, 4]).max() > 0.05


@pytest.mark.parametrize("density", [0.0, 0.001, 0.02, 0.5, 1.0])
def test_the_first_convolution_of_few_cells_is_that_of_all(density: float) -> None:
    random = np.random.default_rng(0)
    weight = torch.randn(16, 20, 7, 7, generator=torch.Generator().manual_seed(0))
    frame = ((random.random((20, 32, 64)) < density) * random.integers(1, 256, (20, 32, 64))).astype(np.uint8)
    order = random.permutation(8 * 16)
    expected = F.conv2d(torch.from_numpy(frame)[None].float(), weight, stride=4, padding=3)[0].flatten(1).T.numpy()[order]
    stem = Stem(weight, order, 32, 64)
    scale = max(np.abs(expected).max(), 1.0)
    for found in (stem(frame), stem.dense(frame)):
        np.testing.assert_allclose(found / scale, expected / scale, atol=1e-6)


def test_wrong_frames_are_refused(nano: Detector) -> None:
    runtime = open_runtime(nano)
    state = runtime.initial_state(HEIGHT, WIDTH)
    with pytest.raises(InputError, match="uint8"):
        runtime.step(np.zeros((20, HEIGHT, WIDTH), np.float32), state, 1.0)
    with pytest.raises(InputError, match="dt=0"):
        runtime.step(frames(1)[0], state, 0.0)


@pytest.mark.slow
def test_on_a_busy_machine_the_default_threads_cost_no_more_than_one(nano: Detector) -> None:
    """In CPU time: threads that wait for each other on taken cores burn it. Both beside two processes that spin."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        took: dict[int | None, list[float]] = {None: [], 1: []}
        runtimes = {threads: open_runtime(nano, threads=threads) for threads in took}
        states = {threads: runtime.initial_state(128, 160) for threads, runtime in runtimes.items()}
        frame = np.zeros((20, 128, 160), np.uint8)
        for _ in range(5):
            for threads, runtime in runtimes.items():
                began_s = time.process_time()
                for _ in range(5):
                    runtime.step(frame, states[threads], 1.0)
                took[threads].append(time.process_time() - began_s)
        assert min(took[None]) < 2 * min(took[1])
    finally:
        for process in spinning:
            process.kill()
            process.wait()
