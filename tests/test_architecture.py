"""The tree is what DESIGN and README say: imports point one way, every file is named, no optional package is needed to import."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "saccade"

# In the order in which data flows: a module imports only from its own layer or from those before it.
LAYERS = [
    "types", "files", "machine", "pool", "config", "samples", "events", "representation", "model", "detection", "weights", "export",
    "sources", "stream", "outputs", "simulate", "datasets", "evaluation", "training", "commands", "cli",
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


def test_the_readme_prints_the_tree() -> None:
    """Every module has its line, and every line its file."""
    block = re.search(r"```\n(saccade/\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block, "README.md has no tree: a code block that begins with saccade/"
    named, folders = set(), [ROOT]
    for line in block[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        path = folders[depth] / name.rstrip("/")
        assert path.exists(), f"README.md names {path.relative_to(ROOT)}, which isn't there"
        folders = [*folders[: depth + 1], path]
        named.add(path)
    for path in MODULES:
        if path.name != "__init__.py":
            assert path in named, f"README.md doesn't name {path.relative_to(ROOT)}"


def test_importing_saccade_imports_nothing_slow_or_optional() -> None:
    """torch takes two seconds, and `saccade info` needs none of it."""
    code = "import sys, saccade, saccade.cli; print([m for m in ('torch', 'av', 'rosbags', 'mcap', 'matplotlib') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"
