"""DETECTOR -> Runtime by a graph that is built, measured and compared with torch at the start: what a CPU runs by default."""

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from saccade.export.build import FIRST, ROWS, build_step, sampled_inputs
from saccade.export.stem import Stem
from saccade.export.step import Runtime, TorchRuntime, compare, fastest
from saccade.model.detector import Detector
from saccade.types import InputError

log = logging.getLogger("saccade")
ENGINE = "onnxruntime"
CHECKED_DT = (1.0, 0.1, 0.1)  # of the steps that are compared with torch
MOST_SAMPLED = 8  # values of dt whose inputs are kept
OrtValue = Any  # an array in the memory of onnxruntime, which has no types


class GraphSession:
    """A graph in onnxruntime. Values stay in its memory, so a state isn't copied from step to step.

    Not OpenVINO: it is no faster on this graph, and compiling some sizes ends the process (2026.4).
    """

    def __init__(self, model: bytes, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors: it warns of every folded constant
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # on a busy machine, waiting threads take others' time
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._value = onnxruntime.OrtValue.ortvalue_from_numpy

    def value(self, array: np.ndarray) -> OrtValue:
        """The array as an input; its memory is shared."""
        return self._value(array)

    def array(self, value: OrtValue) -> np.ndarray:
        return value.numpy()

    def run(self, inputs: Mapping[str, OrtValue], outputs: Sequence[str]) -> list[OrtValue]:
        return list(self._session.run_with_ort_values(outputs, inputs))


class GraphState(NamedTuple):
    graph: "SizedGraph"  # that made it and can read it
    values: tuple[OrtValue, ...]


class SizedGraph:
    """A Runtime for frames of one size."""

    def __init__(self, detector: Detector, height: int, width: int, threads: int = 1) -> None:
        self.detector, self.config = detector, detector.config
        self.size = height, width = self.config.backbone.padded(height, width)
        self.graph = build_step(detector, height, width)
        self.threads = threads
        self._stem = Stem(detector.backbone.stages[0].downsample.weight, self.graph.order, height, width)
        self._session = GraphSession(self.graph.model, threads)
        self._memory_session: GraphSession | None = None  # the graph without neck and head
        self._next_states = [f"next_{name}" for name in self.graph.states]
        self._sampled: OrderedDict[float, dict[str, OrtValue]] = OrderedDict()

    def initial_state(self, height: int, width: int) -> GraphState:
        shapes = [layout.held for layout in self.graph.states.values()]
        return GraphState(self, tuple(self._session.value(np.zeros(shape, np.float32)) for shape in shapes))

    def step(self, frame: np.ndarray, state: GraphState, dt: float) -> tuple[np.ndarray, GraphState]:
        rows, *values = self._session.run(self._inputs(frame, state, dt), [ROWS, *self._next_states])
        return self._session.array(rows), GraphState(self, tuple(values))

    def remember(self, frame: np.ndarray, state: GraphState, dt: float) -> GraphState:
        """The state after a frame of which nobody asks for boxes: neck and head are a third of a step."""
        if not self.graph.states:
            return state
        if self._memory_session is None:
            self._memory_session = GraphSession(build_step(self.detector, *self.size, detects=False).model, self.threads)
        return GraphState(self, tuple(self._memory_session.run(self._inputs(frame, state, dt), self._next_states)))

    def _inputs(self, frame: np.ndarray, state: GraphState, dt: float) -> dict[str, OrtValue]:
        if not 0 < dt < float("inf"):
            raise InputError(f"{self.config.name}: dt={dt} must be positive and finite")
        if state.graph is not self:
            state = self.state_from_arrays(state.graph.state_to_arrays(state))
        first = {FIRST: self._session.value(self._stem(self._padded(frame)))}
        return first | self._sampled_inputs(dt) | dict(zip(self.graph.states, state.values, strict=True))

    def prepare(self, dt: float) -> None:
        self._sampled_inputs(dt)

    def state_to_arrays(self, state: GraphState) -> dict[str, np.ndarray]:
        layouts = self.graph.states.items()
        return {name: layout.to_detector(self._session.array(value)) for (name, layout), value in zip(layouts, state.values, strict=True)}

    def state_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> GraphState:
        expected = {name: layout.shape for name, layout in self.graph.states.items()}
        found = {name: tuple(array.shape) for name, array in arrays.items()}
        if found != expected:
            raise InputError(f"{self.config.name}: the state holds {found}, expected {expected}; it is of another model or size")
        values = (self._session.value(layout.from_detector(arrays[name])) for name, layout in self.graph.states.items())
        return GraphState(self, tuple(values))

    def _padded(self, frame: np.ndarray) -> np.ndarray:
        """Zeros at the bottom and right, as `Detector.encode` adds them."""
        channels, height, width = self.config.backbone.channels, *self.size
        if frame.shape == (channels, height, width) and frame.dtype == np.uint8:
            return np.ascontiguousarray(frame)
        if frame.ndim != 3 or len(frame) != channels or frame.dtype != np.uint8:
            raise InputError(f"{self.config.name}: a frame must be uint8 ({channels}, height, width), got {frame.dtype} {frame.shape}")
        return np.pad(frame, ((0, 0), (0, height - frame.shape[1]), (0, width - frame.shape[2])))

    def _sampled_inputs(self, dt: float) -> dict[str, OrtValue]:
        found = self._sampled.get(dt)
        if found is None:
            arrays = sampled_inputs(self.detector, dt)
            found = self._sampled[dt] = {name: self._session.value(arrays[name]) for name in self.graph.sampled}
            while len(self._sampled) > MOST_SAMPLED:
                self._sampled.popitem(last=False)
        return found


class GraphRuntime:
    """A Runtime for frames of any size: a graph for each, built when it is first asked for, and torch where there is none.

    threads: None for one, or all cores where a step takes long and they are measured to be faster. strict: InputError in place of torch.
    owned: nobody else has the detector; otherwise it is looked at before every step, because somebody might train it.
    """

    def __init__(self, detector: Detector, threads: int | None = None, strict: bool = False, owned: bool = False) -> None:
        self.config, self.detector = detector.config, detector
        self.torch = TorchRuntime(detector, threads or 1)
        self._threads, self._strict, self._owned = threads, strict, owned
        self._chosen: dict[tuple[int, int], Runtime] = {}
        self._tensors = [*detector.parameters(), *detector.buffers()]
        self._versions = self._current()

    def initial_state(self, height: int, width: int) -> Any:
        return self.chosen(height, width).initial_state(height, width)

    def step(self, frame: np.ndarray, state: Any, dt: float) -> tuple[np.ndarray, Any]:
        runtime = self.chosen(*frame.shape[-2:])
        if isinstance(state, GraphState) != isinstance(runtime, SizedGraph):
            state = runtime.state_from_arrays(self.state_to_arrays(state))
        return runtime.step(frame, state, dt)

    def prepare(self, dt: float) -> None:
        for runtime in self._chosen.values():
            runtime.prepare(dt)

    def state_to_arrays(self, state: Any) -> dict[str, np.ndarray]:
        return (state.graph if isinstance(state, GraphState) else self.torch).state_to_arrays(state)

    def state_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """As torch's; the first step takes it to where it computes."""
        return self.torch.state_from_arrays(arrays)

    def chosen(self, height: int, width: int) -> Runtime:
        """What computes frames of this size."""
        if not self._owned and (now := self._current()) != self._versions:
            self._versions = now
            self._chosen.clear()
        size = self.config.backbone.padded(height, width)
        if size not in self._chosen:
            self._chosen[size] = self._opened(*size)
        return self._chosen[size]

    def _opened(self, height: int, width: int) -> Runtime:
        try:
            graph = self._measured(height, width)
            difference = compare(graph, self.torch, height, width, CHECKED_DT)
            if difference.is_small:
                return graph
            reason = f"its boxes would be up to {difference.box_px:.2g} px and its scores {difference.score:.2g} from those of torch"
        except Exception as error:  # whatever a runtime raises, torch computes
            reason = f"{type(error).__name__}: {error}" if not isinstance(error, InputError | ImportError) else str(error)
        if self._strict:
            raise InputError(f"{self.config.name}: {ENGINE} can't compute it ({reason}); take runtime torch")
        if not any(isinstance(runtime, TorchRuntime) for runtime in self._chosen.values()):
            log.warning("torch computes %s, which %s would do faster (%.200s)", self.config.name, ENGINE, reason)
        return fastest(lambda threads: TorchRuntime(self.detector, threads), height, width, self._threads)

    def _measured(self, height: int, width: int) -> SizedGraph:
        def opened(threads: int) -> SizedGraph:
            return SizedGraph(self.detector, height, width, threads)

        return fastest(opened, height, width, self._threads)

    def _current(self) -> list[tuple[int, int]]:
        """Address and version counter of every tensor; none of inference tensors, which have no version."""
        if self._tensors[0].is_inference():
            return []
        return [(tensor.data_ptr(), tensor._version) for tensor in self._tensors]
