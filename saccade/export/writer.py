"""NODES AND WEIGHTS -> ONNX GRAPH: what writing a graph by hand needs, and the layers that all of its parts share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

OPSET, IR_VERSION = 20, 10  # the first opset with a GELU operator


@dataclass(frozen=True, eq=False)
class StateRows:
    """A state as a graph holds it is the detector's with its pixels as one axis, in another order: (pixels, channels) of the detector's
    (1, height, width, channels), and of S4's and S4D's (1, channels, states, height, width) (channels, states, pixels).
    """

    order: np.ndarray  # pixel of each row
    shape: tuple[int, ...]  # of the detector

    @property
    def held(self) -> tuple[int, ...]:
        """The shape in the graph."""
        return (len(self.order), self.shape[3]) if len(self.shape) == 4 else (*self.shape[1:3], len(self.order))

    def from_detector(self, state: np.ndarray) -> np.ndarray:
        if len(self.shape) == 4:
            return np.ascontiguousarray(state.reshape(-1, self.shape[-1])[self.order], np.float32)
        return np.ascontiguousarray(state.reshape(*self.shape[1:3], -1)[..., self.order], np.float32)

    def to_detector(self, held: np.ndarray) -> np.ndarray:
        row_of = inverse(self.order)
        return (held[row_of] if len(self.shape) == 4 else held[..., row_of]).reshape(self.shape)


class Writer:
    """A node or a layer takes the names of its inputs and returns those of its outputs; arrays among the inputs become weights."""

    def __init__(self) -> None:
        self.inputs: dict[str, tuple[int, ...]] = {}  # float32, and their shapes
        self.states: dict[str, StateRows] = {}  # those of the inputs that come back as next_NAME
        self._nodes: list[Any] = []
        self._weights: dict[str, np.ndarray] = {}

    def add(self, kind: str, *inputs: str | np.ndarray, to: str | tuple[str, ...] = "", outputs: int = 1, **attributes: Any) -> Any:
        """A node of one output, whose name is returned (TO, if it is an output of the graph), or of several, as a list."""
        from onnx import helper

        names = [value if isinstance(value, str) else self._weight(value) for value in inputs]
        wanted = (to,) if isinstance(to, str) else to
        results = [name or f"{kind}{len(self._nodes)}_{number}" for number, name in zip(range(outputs), wanted * outputs, strict=False)]
        self._nodes.append(helper.make_node(kind, names, results, **attributes))
        return results[0] if outputs == 1 else results

    def _weight(self, values: np.ndarray) -> str:
        name = f"weight{len(self._weights)}"
        self._weights[name] = np.ascontiguousarray(values, np.float32 if values.dtype.kind == "f" else np.int64)
        return name

    def state(self, name: str, order: np.ndarray, height: int, width: int, channels: int, each: int = 0) -> str:
        """Of so many channels, or, as S4's and S4D's, with EACH states a channel."""
        self.states[name] = StateRows(order, (1, channels, each, height, width) if each else (1, height, width, channels))
        self.inputs[name] = self.states[name].held
        return name

    def split(self, x: str, *sizes: int) -> list[str]:
        return self.add("Split", x, np.array(sizes), axis=-1, outputs=len(sizes))

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, np.array(shape))

    def pick(self, x: str, rows: np.ndarray) -> str:
        return self.add("Gather", x, rows, axis=0)

    def linear(self, x: str, weight: np.ndarray, bias: np.ndarray | None = None) -> str:
        return self.add("MatMul", x, weight.T) if bias is None else self.add("Gemm", x, weight.T, bias)

    def norm(self, x: str, layer: nn.LayerNorm) -> str:
        return self.add("LayerNormalization", x, array(layer.weight), array(layer.bias), axis=-1, epsilon=layer.eps)

    def convolution(self, x: str, weight: np.ndarray, bias: np.ndarray, stride: int = 1, groups: int = 1) -> str:
        """Of an image (1, channels, height, width), padded so that stride 1 keeps its size."""
        size = weight.shape[-1]
        return self.add("Conv", x, weight, bias, group=groups, kernel_shape=[size, size], pads=[size // 2] * 4, strides=[stride, stride])

    def silu(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def model(self, name: str, *outputs: str) -> bytes:
        """The graph with OUTPUTS, then the states."""
        import onnx
        from onnx import helper

        def value(name: str, shape: tuple[int, ...] | None) -> Any:
            return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self._nodes,
            name,
            [value(name, shape) for name, shape in self.inputs.items()],
            [*(value(name, None) for name in outputs), *(value(f"next_{name}", self.inputs[name]) for name in self.states)],
            [onnx.numpy_helper.from_array(values, name) for name, values in self._weights.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()


def array(parameter: Tensor) -> np.ndarray:
    """In double precision, in which weights are folded."""
    return parameter.detach().cpu().double().numpy()


def bias_of(layer: nn.Conv2d) -> np.ndarray:
    assert layer.bias is not None
    return array(layer.bias)


def inverse(order: np.ndarray) -> np.ndarray:
    """The row of each pixel, where ORDER is the pixel of each row."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order))
    return found
