"""OPTIONS as they are written: what several commands share, lists with spaces or commas, names of earlier versions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro

from saccade.s3 import located
from saccade.types import InputError

RateOption = Annotated[float, tyro.conf.arg(name="rate")]
From = Annotated[float | None, tyro.conf.arg(name="from")]
To = Annotated[float | None, tyro.conf.arg(name="to")]
ClockChoice = Literal["relative", "absolute"]
Device = Literal["auto", "cpu", "cuda"]
On = Annotated[str, tyro.conf.arg(metavar="local|ray|ray://HEAD:PORT")]

# Spellings of earlier versions, by command; they work as before and aren't in the help.
EARLIER: dict[str, dict[str, str]] = {
    "view": {"--rate-hz": "--rate", "--start-s": "--from", "--end-s": "--to", "--kind": "--window"},
    "check": {"--rate-hz": "--rate"},
    "prepare": {"--rate-hz": "--rate", "--windows": "--window"},
    "weights": {"--save": "--out"},
}

REGISTRY = tyro.constructors.ConstructorRegistry()  # for every command: each list is read by `_list_rule`


def renamed(arguments: Sequence[str]) -> list[str]:
    """ARGUMENTS of the command line with today's names of options."""
    names = EARLIER.get(arguments[0], {}) if arguments else {}

    def today(word: str) -> str:
        option, sign, value = word.partition("=")
        return names.get(option.replace("_", "-"), option) + sign + value if word.startswith("--") else word

    return [today(word) for word in arguments]


@REGISTRY.primitive_rule
def _list_rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """tuple[X, ...]: `--rates 20 200`, `--rates 20,200` and `--rates 20, 200` are the same."""
    if get_origin(info.type) is not tuple or get_args(info.type)[-1] is not Ellipsis:
        return None
    item = get_args(info.type)[0]
    choices = get_args(item) if get_origin(item) is Literal else None
    name = "|".join(choices) if choices else item.__name__.upper()
    read: Callable[[str], Any] = str if choices else located if item is Path else item

    def parse(words: list[str]) -> tuple[Any, ...]:
        pieces = [piece for word in words for piece in (_paths(word) if item is Path else word.split(","))]
        values = tuple(read(piece.strip()) for piece in pieces if piece.strip())
        unknown = [value for value in values if choices and value not in choices]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(choices or ())}")
        return values

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{name} ...]",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [f"{one:g}" if isinstance(one, float) else str(one) for one in value],
    )


@REGISTRY.primitive_rule
def _path_rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """Paths may be s3://BUCKET/PATH, in every command."""
    if info.type is not Path:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: located(words[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    )


def _paths(word: str) -> list[str]:
    """A name may have a comma in it: it is a list only if every part could be a file of its own."""
    parts = word.split(",")
    listed = all(part == "-" or Path(part).suffix or Path(part).exists() for part in parts if part)
    return parts if listed and not Path(word).exists() else [word]


def check_processes(processes: int) -> None:
    if processes < 0:
        raise InputError(f"--processes {processes}: expected 1 or more, or 0 for one per core")
