"""A runtime is the detector: the same rows as encode and detect, whose state other runtimes can take over."""

from pathlib import Path

import numpy as np
import pytest
import torch

import saccade
from saccade.config import presets
from saccade.detection.decode import dense
from saccade.export.runtime import open_runtime
from saccade.model.detector import Detector
from saccade.types import InputError
from saccade.weights.load import save_detector

HEIGHT, WIDTH = 60, 96  # the height isn't a multiple of 32: padded


@pytest.fixture(scope="module")
def detector() -> Detector:
    torch.manual_seed(0)
    return Detector(presets["s5-vit-nano"]()).eval()


def frames(count: int) -> np.ndarray:
    return np.random.default_rng(0).poisson(0.3, (count, 20, HEIGHT, WIDTH)).astype(np.uint8)


def test_steps_are_those_of_the_detector(detector: Detector) -> None:
    runtime = open_runtime(detector, "torch")
    state, expected_state = runtime.initial_state(HEIGHT, WIDTH), detector.initial_state(torch.zeros(1, 1, 20, HEIGHT, WIDTH))
    for frame, dt in zip(frames(4), (1.0, 0.1, 4.0, 0.02), strict=True):
        frame.flags.writeable = False
        rows, state = runtime.step(frame, state, dt)
        with torch.no_grad():
            predictions, expected_state = detector(torch.tensor(frame)[None, None], expected_state, dt)
        assert np.array_equal(rows, dense(predictions)[0])


def test_a_saved_state_goes_on_in_another_runtime(detector: Detector, tmp_path) -> None:
    save_detector(detector, tmp_path / "weights.safetensors")
    one, other = open_runtime(detector, "torch"), open_runtime(tmp_path / "weights.safetensors", "torch")
    first, second = frames(2)
    _, state = one.step(first, one.initial_state(HEIGHT, WIDTH), 1.0)
    arrays = one.state_to_arrays(state)
    assert list(arrays) == ["state_0_0", "state_1_0", "state_2_0", "state_3_0"]
    expected, _ = one.step(second, state, 0.5)
    rows, _ = other.step(second, other.state_from_arrays(arrays), 0.5)
    assert np.array_equal(rows, expected)
    with pytest.raises(InputError, match="of another model"):
        other.state_from_arrays({"state_0_0": arrays["state_0_0"]})


def test_wrong_options_are_refused(detector: Detector) -> None:
    with pytest.raises(InputError, match="threads=0"):
        open_runtime(detector, threads=0)


def test_a_package_is_not_opened_unless_it_is_trusted(tmp_path: Path) -> None:
    """It holds native code, which runs while it is opened, before anything of it can be checked."""
    path = tmp_path / "a.pt2"
    path.write_bytes(b"anything")
    for open_it in (open_runtime, saccade.Stream):
        with pytest.raises(InputError, match=r"a\.pt2: .*can run any code.*--trust"):
            open_it(path, runtime="package")
        with pytest.raises(InputError, match="can't load it"):
            open_it(path, runtime="package", trust=True)


def field(number: int, value: bytes | int) -> bytes:
    """Of a protobuf message."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    size = len(value)
    return bytes([number << 3 | 2, size & 127 | 128, size >> 7]) + value


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_an_onnx_file_with_data_elsewhere_is_refused(tmp_path: Path, runtime) -> None:
    place = field(13, field(1, b"location") + field(2, b"../../etc/passwd"))
    tensors = [field(8, b"w") + place, field(8, b"w") + field(14, 1)]
    for tensor in tensors:
        node = field(1, field(5, field(5, tensor)))  # a constant of a node
        inner = field(1, field(5, field(6, field(5, tensor))))  # of a graph in a node
        for graph in (field(5, tensor), node, inner, field(15, field(1, tensor))):
            (tmp_path / "a.onnx").write_bytes(field(7, graph))
            with pytest.raises(InputError, match="lie in other files"):
                open_runtime(tmp_path / "a.onnx", runtime)
    (tmp_path / "a.onnx").write_bytes(field(7, field(5, field(8, b"w") + field(14, 0))))
    with pytest.raises(InputError, match="can't load it"):
        open_runtime(tmp_path / "a.onnx", runtime)
