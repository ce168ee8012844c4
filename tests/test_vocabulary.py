"""One vocabulary: an option has one type, default and meaning in every command; lists are written alike; extras are asked for early."""

import dataclasses
import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest
import tyro

import saccade
from saccade import cli
from saccade.commands.options import EARLIER, REGISTRY, renamed
from saccade.events.write import write_events
from saccade.samples import STREET
from saccade.training.settings import TrainingSettings
from saccade.types import InputError
from tests.make.events import random_events

# Names that differ between commands, and why.
REASONS = {
    "out": "files, a folder or a picture: what a command writes; always where it writes",
    "recordings": "how many: to simulate (400), to show (4), to score (0 = all)",
    "seconds": "how long: a demo is short",
    "seed": "a demo shows what the weights haven't seen, and they have seen seed 0",
    "rate": "a demo shows a higher rate beside that of the training; check takes that of stored frames",
    "split": "simulate fills one; of a training it is a setting of the network, in every checkpoint",
    "halved": "prepare leaves it to the data set, a training decides it",
    "batch": "of a training it is a setting that decides the weights",
    "rates": "evaluate has those of the tables; view draws one rate unless several are asked for",
    "weights": "live always detects; view draws boxes if it is told whose",
    "window": "evaluate compares several, and has a published kind of its own",
    "stepping": "evaluate compares several",
    "counts": "evaluate compares several",
    "min_rate": "evaluate compares several, 0 = constant",
    "compile": "for a machine that runs it, or for the steps of a training",
}


class Option(NamedTuple):
    type: Any
    default: Any
    meaning: str  # the first clause of its help


def clause(text: str) -> str:
    return re.split(r"[.;:,]", " ".join(text.split()))[0]


def told(function: Any) -> dict[str, str]:
    """Help by parameter, from the docstring."""
    _, _, text = (inspect.getdoc(function) or "").partition("Args:")
    return dict(re.findall(r"^ +(\w+): (.*(?:\n {8,}.*)*)", text, re.MULTILINE))


def fields_of(settings: type) -> Iterator[tuple[str, Option]]:
    text = inspect.getsource(settings)
    for field in dataclasses.fields(settings):
        found = re.search(rf'^    {field.name}: [^\n]*\n    """(.*?)"""', text, re.MULTILINE | re.DOTALL)
        yield field.name, Option(get_type_hints(settings)[field.name], field.default, clause(found[1]) if found else "")


def options_of(function: Any) -> Iterator[tuple[str, Option]]:
    hints, help_texts = get_type_hints(function, include_extras=True), told(function)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, extras = (get_args(hints[name])[0], get_args(hints[name])[1:]) if get_origin(hints[name]) is Annotated else (hints[name], ())
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue  # a place, not a name
        if dataclasses.is_dataclass(kind):
            yield from fields_of(kind) if any(getattr(one, "name", None) == "" for one in extras) else ()  # others have a prefix
            continue
        shown = next((one.name for one in extras if getattr(one, "name", None)), name)
        yield shown.replace("-", "_"), Option(kind, parameter.default, clause(help_texts[name]))
    if function is cli.train:
        yield from fields_of(TrainingSettings)


def every_option() -> dict[str, dict[str, Option]]:
    found: dict[str, dict[str, Option]] = {}
    for command, function in cli.COMMANDS.items():
        for name, option in options_of(function):
            found.setdefault(name, {})[command] = option
    return found


def test_an_option_has_one_type_default_and_meaning_in_every_command() -> None:
    found = every_option()
    assert {"rate", "from", "to", "window", "processes", "device", "overwrite"} <= found.keys()
    differing = {name: commands for name, commands in found.items() if len(set(map(str, commands.values()))) > 1}
    assert differing.keys() - REASONS.keys() == set(), {name: differing[name] for name in differing.keys() - REASONS.keys()}


def test_every_reason_is_still_needed() -> None:
    assert REASONS.keys() <= {name for name, commands in every_option().items() if len(set(map(str, commands.values()))) > 1}


def test_no_command_says_hz_seconds_or_kind_of_window_in_another_way() -> None:
    assert not {"rate_hz", "start_s", "end_s", "windows", "save"} & every_option().keys()


def parse(command: str, *arguments: str) -> dict[str, Any]:
    """What a command would be called with."""
    function, call = cli.COMMANDS[command], {}

    def stand_in(**values: object) -> None:
        call.update(values)

    stand_in.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    stand_in.__annotations__ = function.__annotations__
    config = (tyro.conf.FlagCreatePairsOff,)
    tyro.cli(stand_in, args=renamed([command, *arguments])[1:], config=config, registry=REGISTRY)
    return call


VALUES: dict[Any, tuple[str, ...]] = {float: ("20", "200.5"), int: ("0", "21"), Path: ("a.mp4", "b.jsonl"), str: ("car", "bus")}
PLACES = {
    "demo": (),
    "info": ("a",),
    "check": ("a",),
    "weights": ("a",),
    "simulate": ("a",),
    "live": ("a",),
    "train": ("a", "b", "synthetic"),
}


def lists() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every option of every command that takes several values, with two of them."""
    for name, commands in every_option().items():
        for command, option in commands.items():
            if get_origin(option.type) is tuple and get_args(option.type)[-1] is Ellipsis:
                item = get_args(option.type)[0]
                yield command, name, get_args(item)[:2] or VALUES[item]


@pytest.mark.parametrize(("command", "name", "values"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in lists()])
def test_lists_are_written_with_spaces_or_commas(command: str, name: str, values: tuple[str, ...]) -> None:
    places, option = PLACES.get(command, ("a", "b")), f"--{name.replace('_', '-')}"
    ways = [values, (",".join(values),), (f"{values[0]},", values[1]), (", ".join(values),)]
    of_recipe = command == "train" and name != "also"  # which stands before the recipe, as an option of the command itself
    first, last = (places, ()) if command != "train" or of_recipe else (places[:-1], places[-1:])
    found = [parse(command, *first, option, *way, *last) for way in ways]
    assert all(one == found[0] for one in found)
    chosen = getattr(found[0]["settings"], name) if of_recipe else found[0][name]
    assert tuple(map(str, chosen)) == tuple(str(float(value)) if type(chosen[0]) is float else value for value in values)


def test_there_are_lists() -> None:
    assert {("evaluate", "rates"), ("evaluate", "window"), ("detect", "out"), ("train", "log")} <= {one[:2] for one in lists()}


def test_a_name_with_a_comma_stays_one_name(tmp_path: Path) -> None:
    assert parse("detect", "a", "b", "--out", "drive,1.mp4")["out"] == (Path("drive,1.mp4"),)
    odd = tmp_path / "a.zip,b.zip"
    odd.mkdir()
    assert parse("simulate", "a", "--images", str(odd))["images"] == (odd,)


@pytest.mark.parametrize(("command", "old", "new"), [(command, *pair) for command, names in EARLIER.items() for pair in names.items()])
def test_names_of_earlier_versions_still_work(command: str, old: str, new: str) -> None:
    value = {"--window": "disjoint", "--out": "a.safetensors"}.get(new, "7")
    places = PLACES.get(command, ("a", "b"))
    now = parse(command, *places, new, value)
    assert now != parse(command, *places)
    assert parse(command, *places, old, value) == parse(command, *places, f"{old}={value}") == now
    assert parse(command, *places, old.replace("-", "_").replace("__", "--", 1), value) == now


def test_the_version() -> None:
    command = [sys.executable, "-m", "saccade.cli", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert said.stdout == f"saccade {saccade.__version__}\n"


@pytest.mark.parametrize(
    ("suffix", "package", "extra"), [(".mp4", "av", "video"), (".mcap", "mcap", "foxglove"), (".rrd", "rerun", "rerun")]
)
def test_a_missing_extra_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, package: str, extra: str
) -> None:
    """Before the recording is opened: there is none."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf'needs the package {package}.*pip install "saccade-events\[{extra}\]"'):
        cli.detect("nano", tmp_path / "none.raw", out=(tmp_path / f"boxes{suffix}",))


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("av", lambda folder: cli.view(folder / "none.raw", folder / "a.mp4")),
        ("av", lambda folder: cli.demo(out=folder / "demo", recordings=1, seconds=0.5)),
        ("cv2", lambda folder: cli.simulate(folder / "set", photos=folder / "none.json")),
        ("onnxscript", lambda folder: cli.export("none", folder / "a.onnx")),
        ("wandb", lambda folder: saccade.train(folder / "none", folder / "run", log=("wandb",))),
    ],
)
def test_so_it_is_in_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, call: Any) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs the package {package}.*saccade-events\["):
        call(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_video_never_vanishes_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without --out and without PyAV there are the JSON lines, and it is said what the video needs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "av", None)
    write_events([random_events(2000, width=64, height=48, start_us=0)], tmp_path / "drive.h5")
    with caplog.at_level(logging.WARNING, "saccade"):
        cli.detect("nano", tmp_path / "drive.h5")
    assert {path.name for path in tmp_path.iterdir()} == {"drive.h5", "drive_detected.jsonl"}
    assert any("saccade-events[video]" in record.getMessage() for record in caplog.records)


def test_classes_are_chosen_in_any_capitals(tmp_path: Path) -> None:
    for text in ("Car", "car"):
        cli.detect("nano", STREET, end_s=0.3, out=(tmp_path / f"{text}.jsonl",), classes=(text,))
    assert (tmp_path / "Car.jsonl").read_text() == (tmp_path / "car.jsonl").read_text()
