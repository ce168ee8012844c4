"""DATACLASSES <-> JSON'S PLAIN VALUES: what comes back is checked, every name, type and choice of it."""

import math
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin

from saccade.types import InputError

NAN = math.nan  # one object, so that equal records compare equal
WORDS = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no numbers for them, so they are texts


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, floats that JSON can't write as texts."""
    if is_dataclass(value):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_plain(kind: Any, value: Any, where: str) -> Any:
    """A value of KIND, which is what fields of our dataclasses are: X | None, tuples of one kind, dict[str, X], Literal, numbers, text."""
    if is_dataclass(kind):
        return _record(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return None if value is None else from_plain(inner[0], value, where)
    if origin is tuple and isinstance(value, list) and (inner[-1] is Ellipsis or len(inner) == len(value)):
        return tuple(from_plain(inner[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: from_plain(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is Literal and value in inner:
        return value
    if kind is float and isinstance(value, str) and value in WORDS:
        return WORDS[value]
    if kind is float and type(value) in (int, float):
        with suppress(OverflowError):
            return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    expected = ", ".join(map(str, inner)) if origin is Literal else kind.__name__ if origin is None else str(kind)
    raise InputError(f"{where}: {value!r:.80}; expected {expected}; was the file changed by hand?")


def _record(kind: Any, value: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {value!r:.80}; expected {', '.join(hints)}")
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    wrong = sorted((set(value) - set(hints)) | (required - set(value)))
    if wrong:
        raise InputError(f"{where}: {', '.join(wrong)} unknown or missing; written by another version of saccade?")
    values = {name: from_plain(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
