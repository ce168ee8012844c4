"""Odd values in every option of every command: it is done or refused in a line, never a traceback, and no file that was there changes.

Commands and options come from the parsers of `saccade.cli`: a new option is covered as soon as it exists.
"""

import json
import logging
import math
import os
import resource
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import tyro

from saccade import cli
from saccade.config import BackboneConfig, DetectorConfig, MemoryConfig
from saccade.datasets.augment import AugmentSettings
from saccade.datasets.lanes import LaneSettings
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import PreparedSettings
from saccade.datasets.recording import Sampling
from saccade.evaluation.run.condition import Condition
from saccade.files import from_plain
from saccade.simulate.dataset import DatasetConfig, RecordingConfig
from saccade.simulate.sensor import SensorConfig
from saccade.training.settings import MemoryChanges, TrainingSettings
from saccade.types import InputError
from tests.datasets.make import recording, some_events
from tests.training.make import weights_file

DAT, CSV, DATA, WEIGHTS, FOLDER, PRECIOUS = (
    f"../in/{name}" for name in ("a.dat", "a.csv", "set", "tiny.safetensors", "folder", "precious.txt")
)
TRAINING = ["--model", WEIGHTS, "--steps", "1", "--batch", "2", "--length", "1", "--workers", "0", "--threads", "1", "--log"]
# A quick call of each command, from a folder beside that of the files; every option is then given an odd value in its place, or added.
CALLS = {
    "demo": ["--recordings", "0", "--out", "demo"],  # refused after all else was looked at: a demo takes long
    "info": [CSV],
    "convert": [CSV, "out.h5"],
    "view": [DAT, "out.png"],
    "simulate": ["out", "--recordings", "1", "--seconds", "0.05", "--size", "32x32", "--processes", "1"],
    "check": [DATA, "--split", "train"],
    "prepare": [DATA, "out", "--split", "train", "--processes", "1"],
    "train": ["missing", "out", "synthetic", *TRAINING],  # refused after settings and weights were looked at: a step takes long
    "evaluate": [WEIGHTS, DATA, "--split", "train", "--rates", "20", "--processes", "1"],
    "detect": [WEIGHTS, DAT, "--out", "out.jsonl"],
    "live": ["missing.raw"],  # refused: a page goes on until it is closed
    "send": ["missing.raw", "udp://127.0.0.1:9"],
    "export": [WEIGHTS, "out.onnx", "--quantise", "int8"],  # refused before the export, which takes long
    "weights": [WEIGHTS, "--save", "out.safetensors"],
}


@pytest.fixture(autouse=True)
def _no_handlers_of_others() -> None:
    """Libraries that log without being asked leave handlers behind, for the output of tests that have long ended."""
    for logger in (logging.getLogger(), logging.getLogger("saccade")):
        for handler in [one for one in logger.handlers if getattr(getattr(one, "stream", None), "closed", False)]:
            logger.removeHandler(handler)


WHOLE = {"minus one": "-1", "zero": "0", "beyond int64": "1" + "0" * 30, "largest int64": str(2**63 - 1)}
NUMBERS = {"minus one": "-1", "zero": "0", "NaN": "nan", "infinity": "inf", "1e308": "1e308", "1e-308": "1e-308"}
TEXTS = {
    "nothing": "",
    "lone surrogate": "\ud800",
    "byte that is no text": "\udcff",
    "unicode": "träm 電車 🚋",
    "HTML": "<b>&\"'",
    "above": "../x",
    "too long": "x" * 300,
    "folder": FOLDER,
    "missing": "missing/file",
    "precious file": PRECIOUS,
    "line break": "a\nb",
}
WORDS = {"minus one": "-1", "cuda": "cuda", "gpu": "gpu", "cuda:99": "cuda:99", "meta": "meta", "huge size": "99999x99999"}


@dataclass(frozen=True)
class Case:
    command: str
    option: str  # its flag, or the place of a positional argument
    value: str | None  # None: the flag alone

    def line(self) -> list[str]:
        call = list(CALLS[self.command])
        if self.option.isdecimal():
            place = int(self.option)
            replaced = place < len(names_of(self.command))
            return [self.command, *call[:place], self.value or "", *call[place + replaced :]]
        if self.option in call:
            first = call.index(self.option)
            last = next((i for i in range(first + 1, len(call)) if call[i].startswith("--")), len(call))
            del call[first:last]
        odd = [self.option] if self.value is None else [self.option, self.value]
        place = call.index("synthetic") if self.command == "train" and self.option == "--kind" else len(call)
        return [self.command, *call[:place], *odd, *call[place:]]


def names_of(command: str) -> list[str]:
    """The positional arguments of its call."""
    return list(takewhile(lambda word: not word.startswith("--"), CALLS[command]))


def usual(command: str, option: str) -> str:
    """The value in its call, if it has one."""
    call = CALLS[command]
    if option.isdecimal():
        return "".join(names_of(command)[int(option) :][:1])
    return "".join(call[call.index(option) + 1 :][:1]) if option in call else ""


def actions_of(parser: Any) -> Iterator[Any]:
    """Also those of the last of its subcommands, which all have the same."""
    for action in parser._actions:
        kind = type(action).__name__  # of tyro's own copy of argparse
        if kind == "_SubParsersAction":
            yield from actions_of(list(action.choices.values())[-1])
        elif kind != "_HelpAction":
            yield action


def values_for(kind: str, suffix: str) -> dict[str, str]:
    """KIND: what the help says, such as FLOAT or PATH. SUFFIX: of the usual value, which odd names of files get, too."""
    if "INT" in kind:
        return WHOLE
    if "FLOAT" in kind:
        return NUMBERS
    if kind.lstrip("[").startswith("{") and "}|" not in kind:
        return {"unknown choice": "odd"}
    as_they_are = ("", FOLDER, PRECIOUS)
    texts = {name: value if value in as_they_are else value + suffix for name, value in TEXTS.items()}
    return texts | (WORDS if "STR" in kind else {})


def cases() -> Iterator[pytest.param]:
    for command, function in cli.COMMANDS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            parser = tyro.extras.get_parser(function, config=(tyro.conf.FlagCreatePairsOff,))
        place = 0
        for action in actions_of(parser):
            if action.option_strings:
                option = action.option_strings[0]
            else:
                option, place = str(place), place + 1
            name = Path(usual(command, option))
            suffix = name.suffix if name.parent == Path(".") else ""
            odd: dict[str, str | None] = {"set": None} if action.nargs == 0 else dict(values_for(str(action.metavar), suffix))
            for what, value in odd.items():
                yield pytest.param(Case(command, option, value), id=f"{command} {option} {what}")


CASES = list(cases())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """in/ holds two recordings, a data set, weights, and a file that nobody may touch."""
    folder = tmp_path_factory.mktemp("odd") / "in"
    events = some_events(count=900, span_us=300_000)
    recording(folder / "a.dat", events)
    recording(folder / "a.csv", events)
    for split in ("train", "val", "test"):
        recording(folder / f"set/{split}/{split}.dat", events)
        rows = [f"{t},10,8,20,30,{kind}" for t, kind in ((100_000, "bright"), (200_000, "dark"))]
        (folder / f"set/{split}/{split}.csv").write_text("\n".join(["t_us,x,y,w,h,class", *rows]) + "\n")
    (folder / "folder").mkdir()
    for path in (folder / "precious.txt", folder / "folder" / "precious.txt"):
        path.write_text("nobody may touch this")
    weights_file(folder)
    return folder.parent


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_an_odd_value_is_used_or_refused(
    case: Case, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamps(place / "in")
    here = place / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["saccade", *case.line()])
    try:
        cli.main()
        code: object = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        said = capsys.readouterr().err
        monkeypatch.undo()
        shutil.rmtree(here)
        after = stamps(place / "in")
        for path in (*after.keys() - before.keys(), *place.glob("x*")):  # what was written there, and to ../x
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    assert code == 0 or said.strip()
    assert {path: after.get(path) for path in before} == before, "a file that was there before"


def test_every_command_has_a_call() -> None:
    assert CALLS.keys() == cli.COMMANDS.keys()
    assert len(CASES) > 900


# What is written, and how many bytes a file may have: less than its first one needs, or, of a training, than its checkpoint needs.
FULL = {
    "convert": ([CSV, "out.h5"], 3000),
    "view": ([DAT, "out.png"], 3000),
    "simulate": (CALLS["simulate"], 3000),
    "prepare": (CALLS["prepare"], 3000),
    "train": ([DATA, "out", "synthetic", *TRAINING], 100_000),
    "evaluate": ([*CALLS["evaluate"], "--out", "out"], 3000),
    "detect": ([WEIGHTS, DAT, "--out", "out.jsonl"], 300),
    "weights": (CALLS["weights"], 3000),
}


@pytest.mark.parametrize("command", FULL)
def test_a_full_disk_is_said_in_a_line(
    command: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the size of files stands for the end of the disk; where the run may go on, what is whole stays."""
    call, size = FULL[command]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["saccade", command, *(word.replace("../in", str(place / "in")) for word in call)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr()
    assert end.value.code == 2
    assert "Traceback" not in said.err
    assert "larger than allowed" in said.out + said.err or "File too large" in said.err
    hidden = [path.name for path in tmp_path.rglob(".*")]
    assert not hidden, "neither parts nor locks stay"


# Fields of files: a good file, and what each of its places may be replaced with.
JUNK: list[Any] = [None, -1, 0, 1e308, math.nan, 10**30, "", "\ud800", "x" * 5000, [], {}, [[]], {"": None}, True, "../x", [None]]
SETTINGS = [
    BackboneConfig,
    DetectorConfig,
    MemoryConfig,
    TrainingSettings,
    MemoryChanges,
    LaneSettings,
    AugmentSettings,
    SensorConfig,
    Condition,
    Sampling,
]
SETTINGS += [DatasetConfig, RecordingConfig, PreparedSettings]


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_junk_in_any_setting_is_used_or_refused(kind: Any) -> None:
    """Settings as files hold them: in weights, prepared data sets, simulated recordings, kept answers."""
    needed = {
        "seed": 1,
        "what": "frames",
        "name": "a",
        "split": "train",
        "classes": ["car"],
        "sampling": None,
        "halve": "no",
        "recordings": [],
    }
    good = {
        item.name: needed[item.name]
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING and item.name in needed
    }
    for item in fields(kind):
        for junk in JUNK:
            try:
                from_plain(kind, good | {item.name: junk}, "file.json")
            except InputError as error:
                assert str(error).startswith("file.json")


LABELS: dict[str, Any] = {
    "splits.json": {"train": ["train"], "val": ["val"], "test": ["test"]},
    "labels.json": {
        "images": [{"id": 1, "file_name": "train.dat", "time_us": 300_000}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "track_id": 1, "iscrowd": 0}],
        "categories": [{"id": 1, "name": "car"}],
    },
    "classes.txt": ["car", "tram"],
}


def changed(value: Any) -> Iterator[Any]:
    """VALUE with junk in one place, in every place."""
    yield from JUNK
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for other in changed(value[key]):
            yield {**value, key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1 :]]


@pytest.mark.parametrize("name", LABELS)
def test_junk_in_any_field_of_labels_is_used_or_refused(name: str, place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "in/set/train/train.dat", tmp_path / "train.dat")
    if name != "labels.json":
        (tmp_path / "train.csv").write_text("t_us,x,y,w,h,class\n300000,1,2,3,4,car\n")
    for number, content in enumerate(changed(LABELS[name])):
        path = tmp_path / name
        if name == "classes.txt":
            lines = content if isinstance(content, list) else [content]
            path.write_text("\n".join(map(str, lines)), errors="surrogatepass")
        else:
            path.write_text(json.dumps(content))
        os.utime(path, ns=(number, number))  # labels are parsed again where the file has changed
        try:
            dataset = open_dataset(tmp_path, "train" if name == "splits.json" else "all", "folder")
            assert all(len(one.labels.t) >= 0 for one in dataset.recordings)
        except InputError as error:
            assert str(tmp_path) in str(error) or "class" in str(error)


@pytest.mark.parametrize("column", range(7), ids=["t", "x", "y", "w", "h", "class", "track"])
def test_junk_in_any_cell_of_a_label_csv_is_used_or_refused(column: int, place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "in/set/train/train.dat", tmp_path / "a.dat")
    (tmp_path / "classes.txt").write_text("car\n")
    for junk in ("", "-1", "nan", "inf", "1e308", "1" + "0" * 30, "1" * 5000, "²", "é", '"', "0x10", "1_000", "\0"):
        cells = ["300000", "1", "2", "3", "4", "car", "1"]
        cells[column] = junk
        (tmp_path / "a.csv").write_text(f"t_us,x,y,w,h,class,track\n{','.join(cells)}\n")
        try:
            assert all(len(one.labels.t) <= 1 for one in open_dataset(tmp_path, "all", "folder").recordings)
        except InputError as error:
            assert "a.csv" in str(error)
