"""An exported file is the detector: the same boxes at every rate, in every runtime; what can't be exported or opened says why."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import saccade
from saccade.commands.export import calibration_frames, export
from saccade.config import presets
from saccade.export.exported import ExportedRuntime
from saccade.export.graph import COMPARED_DT, SUFFIXES, export_detector, matrix_exponential
from saccade.export.quantise import quantise_onnx
from saccade.export.runtime import open_runtime
from saccade.export.step import Difference, TorchRuntime, compare
from saccade.model.detector import Detector
from saccade.samples import STREET
from saccade.stream.fit import canvas_for
from saccade.types import InputError
from saccade.weights.load import save_detector

pytest.importorskip("onnxscript", reason="the extra `export` isn't installed")

HEIGHT, WIDTH = 60, 96  # the height isn't a multiple of 32: padded
ROOT = Path(__file__).parents[2]
NANO = ["s5-vit-nano", "s4d-vit-nano", "s4-vit-nano", "gs5-vit-nano", "rvt-nano", "red-nano", "get-nano"]


def rates(steps: int) -> tuple[float, ...]:
    """From 0.02 to 4 windows, every step another."""
    return tuple(float(dt) for dt in np.exp(np.random.default_rng(1).uniform(np.log(0.02), np.log(4), steps)))


def detector_of(name: str) -> Detector:
    torch.manual_seed(0)
    return Detector(presets[name]()).eval()


def from_torch(runtime: ExportedRuntime, detector: Detector, dt: tuple[float, ...] = COMPARED_DT) -> Difference:
    return compare(runtime, TorchRuntime(detector), runtime.signature.height, runtime.signature.width, dt)


def run_export(detector: Detector, path: Path, *options: str, size: str = f"{WIDTH}x{HEIGHT}") -> str:
    """Through the command, in a process of its own: the tests' shape checker can't read the symbols that torch.export traces with."""
    weights = path.with_suffix(".safetensors")
    save_detector(detector, weights)
    command = [sys.executable, "-m", "saccade.cli", "export", str(weights), str(path), "--size", size, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def opened(path: Path, runtime) -> ExportedRuntime:
    if runtime == "openvino":
        pytest.importorskip("openvino", reason="the extra `openvino` isn't installed")
    found = open_runtime(path, runtime, threads=1, trust=True)
    assert isinstance(found, ExportedRuntime)
    return found


@pytest.fixture(scope="module")
def detector() -> Detector:
    return detector_of("s5-vit-nano")


@pytest.fixture(scope="module")
def exported(detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "nano.onnx"
    assert "largest difference to torch: boxes" in run_export(detector, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_200_steps_at_changing_rates_are_those_of_torch(detector: Detector, exported: Path, runtime: str) -> None:
    difference = from_torch(opened(exported, runtime), detector, rates(200))
    assert difference.box_px < 0.01
    assert difference.score < 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*NANO, "s5-vit-s"])
def test_every_memory_is_the_same_in_every_runtime(name: str, tmp_path: Path) -> None:
    detector = detector_of(name)
    for suffix, runtimes in ((".onnx", ("onnxruntime", "openvino")), (".pt2", ("package",))):
        path = tmp_path / f"detector{suffix}"
        run_export(detector, path)
        for runtime in runtimes:
            difference = from_torch(opened(path, runtime), detector, rates(200))
            assert difference.box_px < 0.01, (name, runtime)
            assert difference.score < 1e-4, (name, runtime)


@pytest.mark.thorough
def test_a_compiled_package_is_the_same(detector: Detector, tmp_path: Path) -> None:
    run_export(detector, tmp_path / "compiled.pt2", "--compile", size="64x64")
    assert from_torch(opened(tmp_path / "compiled.pt2", "package"), detector, rates(200)).is_small


@pytest.mark.slow
def test_the_comparison_sees_other_weights(exported: Path) -> None:
    torch.manual_seed(1)
    assert not from_torch(opened(exported, "auto"), Detector(presets["s5-vit-nano"]()).eval()).is_small


@pytest.mark.slow
def test_streams_in_a_batch_have_their_own_rates(exported: Path) -> None:
    """The graph itself: a batch of two is two batches of one, each with its dt."""
    import onnxruntime

    session = onnxruntime.InferenceSession(exported)
    random = np.random.default_rng(0)
    inputs = {
        "frames": random.poisson(0.3, (2, 20, 64, 96)).astype(np.uint8),
        "dt": np.array([0.1, 2.0], np.float32),
        **{item.name: random.normal(size=(2, *item.shape[1:])).astype(np.float32) for item in session.get_inputs()[2:]},
    }
    together = session.run(None, inputs)
    for sample in range(2):
        alone = session.run(None, {name: value[sample : sample + 1] for name, value in inputs.items()})
        for one, both in zip(alone, together, strict=True):
            np.testing.assert_allclose(one[0], both[sample], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_file_says_what_it_needs(detector: Detector, exported: Path) -> None:
    import onnx

    model = onnx.load(exported)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert [item.name for item in model.graph.input] == said["inputs"].split(", ") == ["frames", "dt", *(f"state_{n}_0" for n in range(4))]
    assert [item.name for item in model.graph.output] == said["outputs"].split(", ")
    assert {item.type.tensor_type.shape.dim[0].dim_param for item in model.graph.input} == {"batch"}
    assert said["opset"] == str(model.opset_import[0].version)
    assert opened(exported, "onnxruntime").config == detector.config
    complex_types = (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)
    assert not [value for value in model.graph.value_info if value.type.tensor_type.elem_type in complex_types]


@pytest.mark.slow
def test_the_state_of_torch_goes_on_in_onnx(detector: Detector, exported: Path) -> None:
    first, second = np.random.default_rng(0).poisson(0.3, (2, 20, HEIGHT, WIDTH)).astype(np.uint8)
    ours, theirs = open_runtime(detector, "torch"), open_runtime(exported)
    _, state = ours.step(first, ours.initial_state(HEIGHT, WIDTH), 1.0)
    expected, _ = ours.step(second, state, 0.3)
    rows, after = theirs.step(second, theirs.state_from_arrays(ours.state_to_arrays(state)), 0.3)
    np.testing.assert_allclose(rows, expected, atol=1e-3)
    assert theirs.state_to_arrays(after).keys() == ours.state_to_arrays(state).keys()
    with pytest.raises(InputError, match="of another model or size"):
        theirs.state_from_arrays({})


@pytest.mark.slow
def test_the_example_runs_without_saccade(detector: Detector, exported: Path, tmp_path: Path) -> None:
    frames = np.random.default_rng(0).poisson(0.3, (2, 20, HEIGHT, WIDTH)).astype(np.uint8)
    np.save(tmp_path / "frames.npy", frames)
    command = [sys.executable, "-I", str(ROOT / "examples" / "run_onnx.py"), str(exported), str(tmp_path / "frames.npy")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 6
    runtime = open_runtime(detector)
    rows, _ = runtime.step(frames[0], runtime.initial_state(HEIGHT, WIDTH), 1.0)
    assert float(lines[0].split()[2]) == pytest.approx((rows[:, 4] * rows[:, 5:].max(1)).max(), abs=1e-4)


@pytest.mark.slow
def test_another_size_is_refused(exported: Path) -> None:
    runtime = open_runtime(exported)
    state = runtime.initial_state(64, 96)  # what it was padded to
    with pytest.raises(InputError, match=r"frames of 96 x 64, got 96 x 120; .*--size 96x120"):
        runtime.step(np.zeros((20, 120, 96), np.uint8), state, 1.0)
    with pytest.raises(InputError, match="got 128 x 64"):
        runtime.initial_state(64, 128)
    with pytest.raises(InputError, match="uint8"):
        runtime.step(np.zeros((20, 64, 96), np.float32), state, 1.0)
    with pytest.raises(InputError, match="dt=0"):
        runtime.step(np.zeros((20, 64, 96), np.uint8), state, 0.0)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "package"])
def test_files_that_are_not_ours_are_refused(detector: Detector, tmp_path: Path, runtime) -> None:
    suffix = ".pt2" if runtime == "package" else ".onnx"
    with pytest.raises(InputError, match=f"reads a {suffix} file; write it with `saccade export"):
        opened(tmp_path / f"detector{'.onnx' if runtime == 'package' else '.pt2'}", runtime)
    with pytest.raises(InputError, match="no such file"):
        opened(tmp_path / f"missing{suffix}", runtime)
    (tmp_path / f"noise{suffix}").write_bytes(b"\x00noise" * 100)
    with pytest.raises(InputError, match="can't load it"):
        opened(tmp_path / f"noise{suffix}", runtime)
    if runtime != "onnxruntime":
        with pytest.raises(InputError, match="runs a file"):
            open_runtime(detector, runtime)
    with pytest.raises(InputError, match="computes on cpu"):
        open_runtime(tmp_path / f"noise{suffix}", runtime, device="cuda", trust=True)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_an_onnx_file_of_somebody_else_is_refused(exported: Path, tmp_path: Path, runtime) -> None:
    import onnx

    model = onnx.load(exported)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(InputError, match="not a file of `saccade export`"):
        opened(tmp_path / "other.onnx", runtime)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("out.txt", {}, "ends in .onnx or .pt2"),
        ("out.onnx", {"compiled": True}, r"only a \.pt2 file can be compiled"),
        ("out.pt2", {"quantise": "int8"}, r"only an \.onnx file can be quantised"),
        ("out.onnx", {"quantise": "int8"}, "--calibrate"),
        ("out.onnx", {"height": 0}, "must be positive"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(detector: Detector, tmp_path: Path, name: str, options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        export_detector(detector, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())
    assert set(SUFFIXES) == {".onnx", ".pt2"}


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 400.0])
def test_the_exponential_of_products_is_that_of_torch(scale: float) -> None:
    """Of matrices that only dissipate, as those of S4 do: A + A^T is negative."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 33, 33, generator=generator, dtype=torch.float64)
    matrices = scale * ((values - values.mT) / 10 - values @ values.mT / 100)
    torch.testing.assert_close(matrix_exponential(matrices), torch.linalg.matrix_exp(matrices), rtol=1e-8, atol=1e-9)


@pytest.mark.slow
def test_int8_keeps_the_interface_and_the_memory(detector: Detector, exported: Path, tmp_path: Path) -> None:
    import onnx

    frames = np.random.default_rng(0).poisson(0.2, (8, 20, HEIGHT, WIDTH)).astype(np.uint8)
    quantise_onnx(exported, tmp_path / "int8.onnx", frames)
    runtime = opened(tmp_path / "int8.onnx", "onnxruntime")
    assert runtime.config == detector.config
    assert (tmp_path / "int8.onnx").stat().st_size < 0.8 * exported.stat().st_size
    difference = from_torch(runtime, detector)
    assert 0 < difference.score < 0.1
    kinds = {node.output[0]: node.op_type for node in onnx.load(tmp_path / "int8.onnx").graph.node}
    for node in onnx.load(tmp_path / "int8.onnx").graph.node:
        scopes = " ".join(entry.value for entry in node.metadata_props)
        if node.op_type == "MatMul" and "memory" in scopes:
            assert "DequantizeLinear" not in [kinds.get(name) for name in node.input], node.name
    with pytest.raises(InputError, match="n at least 1"):
        quantise_onnx(exported, tmp_path / "none.onnx", frames[:0])


@pytest.mark.parametrize("histogram", ["exact", "published"])
def test_int8_learns_from_the_frames_that_the_detector_will_see(histogram: Literal["exact", "published"]) -> None:
    config = replace(presets["s5-vit-nano"](), histogram=histogram)
    found = calibration_frames(STREET, config, 128, 160)  # a graph that is smaller than the sensor: scaled, as a stream would
    with saccade.open_events(STREET) as reader:
        canvas = canvas_for(config, reader.width, reader.height, fixed=(160, 128))
        seen = [frame.data for frame in saccade.frames(reader, 20, canvas=canvas, mode=histogram)]
    assert found.shape[1:] == (20, 128, 160)
    np.testing.assert_array_equal(found, np.stack(seen[: len(found)]))


def test_the_command_refuses_before_it_works(tmp_path: Path) -> None:
    (tmp_path / "there.onnx").touch()
    for out, size, message in (
        ("there.onnx", "64x64", "exists already"),
        ("out.onnx", "64", "expected width x height"),
        ("out.onnx", "0x64", "expected width x height"),
        ("out.tflite", "64x64", "ends in .onnx or .pt2"),
    ):
        with pytest.raises(InputError, match=message):
            export(tmp_path / "weights.safetensors", tmp_path / out, size=size)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "detector.onnx").touch()
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(InputError, match=r"pip install saccade-events\[openvino\]"):
        open_runtime(tmp_path / "detector.onnx", "openvino")
