"""ONNX FILE -> whether its weights lie in other files, which it could name anywhere on the disk. Only the fields that matter are read."""

from collections.abc import Iterator
from pathlib import Path

from saccade.types import InputError

# Message: its fields that lead to tensors (number of the field in onnx.proto: message inside).
_INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # of a tensor
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # how a field is stored
DEEPEST = 64  # graphs inside graphs


def check_self_contained(path: Path) -> None:
    """InputError if a tensor's values lie in another file. What isn't well formed is left to the runtime, which refuses it."""
    try:
        if _leads_outside(memoryview(path.read_bytes()), "model", 0):
            raise InputError(
                f"{path}: its weights lie in other files, and it could name any file of this machine; export it as one file "
                "(`saccade export` does, or onnx.save without external data)"
            )
    except (IndexError, RecursionError):
        return


def _leads_outside(data: memoryview, message: str, depth: int) -> bool:
    if depth > DEEPEST:
        return True
    for number, value in _fields(data):
        if message == "tensor":
            if number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0):
                return True
        elif number in _INSIDE[message] and isinstance(value, memoryview) and _leads_outside(value, _INSIDE[message][number], depth + 1):
            return True
    return False


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = _varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise IndexError("no field of this kind")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128 or shift > 63:
            return value, at
