"""MEMORY -> NODES of the graph of one step: gated S5, S5, S4D, S4 and LSTM; and what of them depends on dt alone."""

import numpy as np
import torch
from torch import nn

from saccade.export.writer import Writer, array
from saccade.model.backbone import Stage
from saccade.model.detector import Detector
from saccade.model.temporal.blocks import GatedBlock, MixedBlock, S5Block
from saccade.model.temporal.gs5 import FASTEST
from saccade.model.temporal.lstm import LSTM
from saccade.types import InputError

CLOCK = "clock"  # of gated S5: the largest step that a gate can choose


def sampled_inputs(detector: Detector, dt: float) -> dict[str, np.ndarray]:
    """Inputs of the graph that follow from dt: the clock, and the systems of S5, S4D and S4 sampled with this step."""
    found = {CLOCK: np.array([FASTEST * np.float32(dt)], np.float32)}
    with torch.no_grad():
        for index, stage in enumerate(detector.backbone.stages):
            if isinstance(stage.memory, S5Block):
                weight_in, decay, _, _ = stage.memory.memory.sampled(torch.full((1, 1), dt, dtype=torch.float32), True)
                real, imag = np.split(decay.reshape(1, -1).numpy(), 2, 1)
                found[f"enter_{index}"] = np.ascontiguousarray(weight_in.T.numpy())
                found[f"stay_{index}"] = np.concatenate([real, real], 1)
                found[f"turn_{index}"] = np.concatenate([-imag, imag], 1)
            elif isinstance(stage.memory, MixedBlock):
                found[f"system_{index}"] = _system(stage.memory, dt)
    return found


def _system(block: MixedBlock, dt: float) -> np.ndarray:
    """(channels, N + 1, N + 1), which makes of a channel's N states and its input the states after the step and its output."""
    advanced, control, observe, direct = (array(part) for part in block.memory.stepped(dt))
    from_states, from_input = observe[:, None] @ advanced, (observe * control).sum(1) + direct
    into = np.concatenate([advanced, control[..., None]], 2)
    out = np.concatenate([from_states, from_input[:, None, None]], 2)
    return np.ascontiguousarray(np.concatenate([into, out], 1), np.float32)


def memory(graph: Writer, x: str, stage: Stage, index: int, order: np.ndarray, rows: int, columns: int) -> str:
    layer, name = stage.memory, f"state_{index}"
    if layer is None:
        return x
    if stage.reset:
        raise InputError("no graph for stages that forget at every step")
    if isinstance(layer, GatedBlock):
        return _gated_s5(graph, x, layer, graph.state(f"{name}_0", order, rows, columns, stage.dim))
    if isinstance(layer, S5Block):
        return _s5(graph, x, layer, index, graph.state(f"{name}_0", order, rows, columns, 2 * len(layer.memory.log_step)))
    if isinstance(layer, MixedBlock):
        return _mixed(graph, x, layer, index, graph.state(f"{name}_0", order, rows, columns, stage.dim, layer.memory.order))
    if isinstance(layer, LSTM) and layer.depthwise is None:
        states = [graph.state(f"{name}_{number}", order, rows, columns, stage.dim) for number in range(2)]
        return _lstm(graph, x, layer, *states)
    raise InputError(f"no graph for a memory of {type(getattr(layer, 'memory', layer)).__name__}")


def _gated_s5(graph: Writer, x: str, block: GatedBlock, state: str) -> str:
    """As GatedS5 computes it, with exp(z) - 1 by half angles and tanh, and the quotient by the eigenvalue moved to the input."""
    layer = block.memory
    width, half = layer.dim, layer.dim // 2
    real, imag = (array(part) for part in layer.eigenvalues())
    graph.inputs[CLOCK] = (1,)
    u = graph.norm(x, layer.norm)
    gates = [layer.pace, layer.admit, layer.show]
    weight = np.concatenate([array(gate.weight) for gate in (*gates, layer.content)])
    bias = np.concatenate([*(array(gate.bias) for gate in gates), np.zeros(width)])
    logits, content = graph.split(graph.linear(u, weight, bias), half + 2 * width, width)
    pace, admit, show = graph.split(graph.add("Sigmoid", logits), half, width, width)
    step = graph.add("Mul", pace, CLOCK)
    exponent, half_angle = graph.add("Mul", step, real), graph.add("Mul", step, imag / 2)
    size, half_sine = graph.add("Exp", exponent), graph.add("Sin", half_angle)
    doubled = graph.add("Mul", size, graph.add("Mul", half_sine, np.array(-2.0)))
    less = graph.add("Mul", doubled, half_sine)  # size (cos - 1)
    less_one = graph.add("Mul", graph.add("Tanh", graph.add("Mul", exponent, np.array(0.5))), graph.add("Add", size, np.array(1.0)))
    decay, minus_turn = graph.add("Add", size, less), graph.add("Mul", doubled, graph.add("Cos", half_angle))
    gain = graph.add("Add", less_one, less)  # the real part of exp(z) - 1; its imaginary part is the decay's
    factor = array(layer.unit_gain()) / (real + 1j * imag)
    admitted_real, admitted_imag = graph.split(graph.add("Mul", admit, graph.add("Tanh", content)), half, half)
    new_real = graph.add("Sub", graph.add("Mul", admitted_real, factor.real), graph.add("Mul", admitted_imag, factor.imag))
    new_imag = graph.add("Add", graph.add("Mul", admitted_real, factor.imag), graph.add("Mul", admitted_imag, factor.real))
    old_real, old_imag = graph.split(state, half, half)
    from_real = graph.add("Add", graph.add("Mul", decay, old_real), graph.add("Mul", gain, new_real))
    from_imag = graph.add("Add", graph.add("Mul", decay, old_imag), graph.add("Mul", gain, new_imag))
    turned_real = graph.add("Mul", minus_turn, graph.add("Add", old_imag, new_imag))
    turned_imag = graph.add("Mul", minus_turn, graph.add("Add", old_real, new_real))
    parts = graph.add("Add", from_real, turned_real), graph.add("Sub", from_imag, turned_imag)
    after = graph.add("Concat", *parts, axis=1, to=f"next_{state}")
    seen = graph.linear(after, array(layer.observe.weight), array(layer.observe.bias))
    shown = graph.add("Mul", graph.add("Tanh", graph.add("Add", seen, graph.add("Mul", u, array(layer.direct)))), show)
    x = graph.add("Add", x, graph.linear(shown, array(block.project.weight)))
    return graph.add("Add", x, _gated_unit(graph, graph.norm(x, block.feed_norm), block.feed_in, block.feed_out))


def _gated_unit(graph: Writer, x: str, widen: nn.Linear, narrow: nn.Linear) -> str:
    value, gate = graph.split(graph.linear(x, array(widen.weight)), widen.in_features, widen.in_features)
    return graph.linear(graph.add("Mul", value, graph.add("Gelu", gate)), array(narrow.weight))


def _s5(graph: Writer, x: str, block: S5Block, index: int, state: str) -> str:
    layer, double = block.memory, 2 * len(block.memory.log_step)
    enter, stay, turn = (f"{what}_{index}" for what in ("enter", "stay", "turn"))
    graph.inputs |= {enter: (layer.dim, double), stay: (1, double), turn: (1, double)}
    u = graph.norm(x, block.norm)
    real, imag = graph.split(state, double // 2, double // 2)
    turned = graph.add("Mul", graph.add("Concat", imag, real, axis=1), turn)
    kept = graph.add("Add", graph.add("Mul", state, stay), turned)
    after = graph.add("Add", kept, graph.add("MatMul", u, enter), to=f"next_{state}")
    weight_out = layer.sampled(torch.ones(1, 1), True)[3]
    y = graph.add("Add", graph.linear(after, array(weight_out)), graph.add("Mul", u, array(layer.D)))
    v = graph.norm(graph.add("Add", graph.add("Gelu", y), u), block.feed_norm)
    return graph.add("Add", v, _gated_unit(graph, v, block.feed_in, block.feed_out))


def _mixed(graph: Writer, x: str, block: MixedBlock, index: int, state: str) -> str:
    """S4D or S4: one product a channel, of its states and its input. Diagonal systems, too: passes over the states cost more."""
    order, system = block.memory.order, f"system_{index}"
    graph.inputs[system] = (block.memory.dim, order + 1, order + 1)
    u = graph.reshape(graph.add("Transpose", graph.norm(x, block.norm), perm=[1, 0]), block.memory.dim, 1, -1)
    both = graph.add("MatMul", system, graph.add("Concat", state, u, axis=1))
    _, y = graph.add("Split", both, np.array([order, 1]), axis=1, to=(f"next_{state}", ""), outputs=2)
    y = graph.add("Gelu", graph.add("Transpose", graph.reshape(y, block.memory.dim, -1), perm=[1, 0]))
    value, gate = graph.split(graph.linear(y, array(block.mix.weight), array(block.mix.bias)), block.memory.dim, block.memory.dim)
    return graph.add("Add", x, graph.add("Mul", value, graph.add("Sigmoid", gate)))


def _lstm(graph: Writer, x: str, layer: LSTM, hidden: str, cell: str) -> str:
    width = layer.dim
    gates = graph.linear(graph.add("Concat", x, hidden, axis=1), array(layer.gates.weight), array(layer.gates.bias))
    logits, candidate = graph.split(gates, 3 * width, width)
    forget, admit, show = graph.split(graph.add("Sigmoid", logits), width, width, width)
    kept, admitted = graph.add("Mul", forget, cell), graph.add("Mul", admit, graph.add("Tanh", candidate))
    after = graph.add("Add", kept, admitted, to=f"next_{cell}")
    return graph.add("Mul", show, graph.add("Tanh", after), to=f"next_{hidden}")
