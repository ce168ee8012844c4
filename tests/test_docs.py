"""What docs/ shows, works: its Python runs, its examples obey the laws, its commands have these options, and what it names is there."""

import inspect
import io
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import saccade
from docs import generate
from saccade import cli
from saccade.model.temporal import TEMPORAL_LAYERS
from saccade.training.settings import presets
from tests import fuzz
from tests.laws import test_formats, test_temporal
from tests.make.events import random_events
from tests.make.formats import FORMATS
from tests.make.prophesee import write_raw

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
CHEAP = ("info", "convert", "check")  # commands that are run; of the others only the options are looked up
MADE_UP = ("get-started", "train")  # pages on data sets that aren't there; tests/test_readme.py runs the first
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of the page, before its first


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(found[1], found[2], text.count("\n", 0, found.start(2))) for found in fences]


def commands(block: Block) -> list[list[str]]:
    """Of a bash block, the lines that call saccade."""
    lines = [line.split("#")[0].strip() for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("saccade ")] if block.language == "bash" else []


def run_page(page: Path) -> dict[str, Any]:
    """Its blocks one after the other in this folder, Python in one namespace: a later one may need what an earlier one made."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)  # errors name the page's line
        for command in commands(block):
            if command[1] in CHEAP and page.stem not in MADE_UP:
                sys.argv = command
                try:
                    cli.main()
                except SystemExit as ended:
                    assert (command[1], ended.code) == ("check", 1), "only a data set that is shown with its problems may end so"
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a recording named as on the pages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    write_raw(tmp_path / "drive.raw", random_events(20_000, width=64, height=48, span_us=1_200_000), "EVT3")
    return tmp_path


@lru_cache
def options(*command: str) -> frozenset[str]:
    """All that `saccade COMMAND --help` lists."""
    text, before = io.StringIO(), sys.argv
    sys.argv = ["saccade", *command, "--help"]
    try:
        with redirect_stdout(text), pytest.raises(SystemExit):
            cli.main()
    finally:
        sys.argv = before
    return frozenset(re.findall(r"--[a-z0-9][a-z0-9.-]*", text.getvalue()))


def test_there_are_pages() -> None:
    wanted = {"architecture", "add-a-memory-layer", "add-a-format", "add-a-data-set", "evaluation-protocols"}
    assert wanted <= {page.stem for page in PAGES}


@every_page
def test_what_it_shows_runs(page: Path, folder: Path, capsys: pytest.CaptureFixture) -> None:
    registered = dict(TEMPORAL_LAYERS)
    run_page(page)
    assert registered == TEMPORAL_LAYERS, "a page leaves something registered"


@every_page
def test_its_commands_have_these_options(page: Path) -> None:
    for block in blocks(page):
        for _, name, *words in commands(block):
            assert name in cli.COMMANDS, f"no command {name}"
            preset = [word for word in words if name == "train" and word in presets]
            unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - options(name) - options(name, *preset)
            assert not unknown, f"saccade {name} has no {', '.join(sorted(unknown))}"


@every_page
def test_options_in_its_text_exist(page: Path) -> None:
    for name, option in re.findall(r"`saccade (\w+)[^`]*?(--[a-z][a-z0-9.-]*)", page.read_text()):
        assert option in options(name), f"saccade {name} has no {option}"


def anchors(page: Path) -> set[str]:
    """Of its headings, as the site and code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@every_page
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"no {target}"
        assert found.is_relative_to(ROOT / "docs"), f"{target} is outside the site"
        assert not anchor or anchor in anchors(found), f"{path} has no heading {anchor}"


def test_every_page_has_its_place_in_the_site() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    placed = re.findall(r"[\w/-]+\.md", repr(site["nav"]))
    assert sorted(placed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("table", sorted((ROOT / "docs/tables").glob("*.md")), ids=lambda table: table.stem)
def test_tables_are_those_of_the_experiments(table: Path) -> None:
    assert table.read_text() == f'--8<-- "results/{table.name}"\n'
    assert (ROOT / "results" / table.name).exists()


def test_generated_pages_are_fresh() -> None:
    assert generate.reference() == generate.REFERENCE.read_text(), "run `python -m docs.generate`"
    assert generate.contributing() == generate.CONTRIBUTING.read_text(), "run `python -m docs.generate`"


def test_the_reference_has_the_whole_api() -> None:
    shown = {name for names in generate.SECTIONS.values() for name in names}
    assert shown == set(saccade.__all__) - {"__version__"} == generate.USAGE.keys()
    for usage in generate.USAGE.values():
        compile(usage, "usage", "exec")


def test_the_tree_has_every_module() -> None:
    tree = generate.tree()
    for path in (ROOT / "saccade").rglob("*.py"):
        name = f"| `{path.name}` |" if path.name != "__init__.py" else f"| `{path.parent.relative_to(ROOT / 'saccade')}/` |"
        assert name in tree or path.parent == ROOT / "saccade", f"{path} isn't in the tree"


@every_page
def test_the_paths_it_names_exist(page: Path) -> None:
    """Those of new files are marked (new)."""
    for path, new in re.findall(r"`((?:saccade|tests|experiments)(?:/[\w.]+)+)`( \(new\))?", page.read_text()):
        assert (ROOT / path).exists() != bool(new), f"{path} {'is there already' if new else 'is not there'}"


@every_page
def test_names_of_files_are_in_them(page: Path) -> None:
    """A row "file, name" of a table, or "name of file" in the text: the name occurs in that file."""
    text = page.read_text()
    pairs = re.findall(r"`((?:saccade|tests)/[\w/.]+\.py)`, `(\w+)`", text)
    pairs += [(file, name) for name, file in re.findall(r"`(\w+)` (?:of|in) `((?:saccade|tests)/[\w/.]+\.py)`", text)]
    for file, name in pairs:
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text()), f"{file} has no {name}"


def test_the_leaky_integrator_obeys_the_laws_of_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All laws of tests/laws/test_temporal.py, export included; slow ones and those of other layers aside."""
    layer = run_page(ROOT / "docs/add-a-memory-layer.md")["Leaky"]
    monkeypatch.setitem(TEMPORAL_LAYERS, "leaky", layer)
    laws: list[Callable] = [law for name, law in inspect.getmembers(test_temporal, inspect.isfunction) if name.startswith("test_")]
    run = 0
    for law in laws:
        parameters = inspect.signature(law).parameters
        if "case" not in parameters or any(mark.name == "slow" for mark in getattr(law, "pytestmark", [])):
            continue
        arguments: dict[str, Any] = {"case": ("leaky", {})} | ({"dtype": torch.float64} if "dtype" in parameters else {})
        for equal in (True, False) if "equal_steps" in parameters else (None,):
            law(**arguments, **({} if equal is None else {"equal_steps": equal}))
            run += 1
    assert run >= 10


def test_the_toy_format_obeys_the_laws_of_formats(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were registered: the readers of the laws and of the fuzzer are opened by its constructor."""
    names = run_page(ROOT / "docs/add-a-format.md")
    monkeypatch.setitem(FORMATS, "toy", (".toy", names["write_toy"], {}))
    for module in (test_formats, fuzz):
        monkeypatch.setattr(module, "open_events", lambda path, index=None, **size: names["ToyReader"](Path(path), **size))
    test_formats.test_what_was_written_is_read("toy", folder)
    test_formats.test_any_piece_equals_that_piece_of_the_whole("toy", folder)
    for count in (0, 1):
        test_formats.test_no_event_and_one_event("toy", count, folder)
    test_formats.test_events_outside_the_sensor_are_passed_on("toy", folder)
    test_formats.test_time_backwards_is_passed_on_and_never_loses_events("toy", folder)
    test_formats.test_a_stated_sensor_goes_before_that_of_the_file("toy", folder)
    test_formats.test_mutated_inputs_give_events_or_inputerror("toy")
