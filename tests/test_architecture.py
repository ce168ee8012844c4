"""The tree: imports point one way, a name has one meaning, importing needs no optional package, extras that errors name exist."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import saccade
from saccade.outputs.outputs import EXTRAS
from saccade.samples import STREET

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "saccade"

# In the order in which data flows: a module imports only from its own layer or from those before it.
LAYERS = [
    "types", "s3", "files", "staging", "arrays", "machine", "pool", "cluster", "config", "samples", "events", "representation",
    "model", "detection", "weights", "export", "simulate", "sources", "stream", "outputs", "live", "datasets", "evaluation",
    "training", "api", "commands", "cli",
]  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path != PACKAGE / "__init__.py"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_imports_point_one_way(path: Path) -> None:
    own = layer(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for name in imports(path):
        if name.startswith("saccade."):
            assert layer(name) <= own, f"{path.name} imports {name}, which comes after it"


@pytest.mark.parametrize("path", sorted((PACKAGE / "events").glob("*.py")), ids=lambda path: path.name)
def test_events_need_no_torch(path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] in ("torch", "matplotlib", "cv2")]


# Names with two meanings, each with the reason why neither gives way.
TWO_MEANINGS: dict[str, str] = {}


def types_of(path: Path) -> set[str]:
    """Public classes and type aliases of a module: CamelCase at its top level."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)}


def test_one_name_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for name in types_of(path):
            homes.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    several = {name: sorted(where) for name, where in homes.items() if len(where) > 1}
    assert several.keys() <= TWO_MEANINGS.keys(), {name: where for name, where in several.items() if name not in TWO_MEANINGS}
    assert TWO_MEANINGS.keys() <= several.keys(), "a name has one meaning by now: take it off the list"


def test_every_module_says_what_it_is() -> None:
    """The tree of docs/contributing.md is made of the first sentences of the docstrings."""
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(ROOT)} has no docstring"


def test_errors_and_pages_name_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*MODULES, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = [(path.name, *found) for path in texts for found in re.findall(r"pip install \W*([\w-]+)\[(\w+)\]", path.read_text())]
    assert named
    asked = [found for path in MODULES for found in re.findall(r'check_extra\(.*, "(\w+)"\)', path.read_text())]
    assert {"video", *asked, *(extra for _, extra in EXTRAS.values())} <= project["optional-dependencies"].keys()
    for file, distribution, extra in named:
        assert distribution == project["name"], f"{file}: the distribution is called {project['name']}"
        assert extra in project["optional-dependencies"], f"{file}: no extra {extra}"


def test_the_public_api_is_there_and_lists_itself() -> None:
    assert sorted(saccade.__all__) == saccade.__all__
    for name in saccade.__all__:
        assert getattr(saccade, name).__doc__, name
        assert name in dir(saccade)
    shown = saccade.__doc__ or ""
    assert all(name in shown for name in saccade.__all__ if name != "__version__")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        saccade.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        ((), ("torch", "scipy", "numba", "h5py", "av", "rosbags", "mcap", "matplotlib", "PIL")),
        (("--help",), ("torch", "scipy", "numba", "h5py", "av", "rosbags", "mcap", "matplotlib", "PIL")),
        (("info", str(STREET)), ("torch", "av", "rosbags", "mcap", "matplotlib", "PIL")),
    ],
    ids=["import", "--help", "info"],
)
def test_what_is_slow_or_optional_is_imported_where_it_is_used(arguments: tuple[str, ...], absent: tuple[str, ...]) -> None:
    """torch takes two seconds, and `saccade info` needs none of it; the list of commands needs nothing at all."""
    code = f"""
import sys, saccade, saccade.cli
sys.argv = ["saccade", *{arguments}]
try:
    saccade.cli.main() if {arguments} else None
except SystemExit:
    pass
print([name for name in {absent} if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.splitlines()[-1] == "[]"
