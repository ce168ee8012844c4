"""What the README shows, works: its Python runs, and so do its commands, on a recording named as there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import cli
from tests.make.events import random_events
from tests.make.prophesee import write_raw

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = [[line.split("#")[0].strip() for line in block.splitlines()] for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)]
COMMANDS = [command for block in BLOCKS for command in block]


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_raw(tmp_path / "drive.raw", random_events(20_000, width=64, height=48, span_us=1_200_000), "EVT3")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python(code: str, drive: Path) -> None:
    exec(code, {})


@pytest.mark.parametrize("block", [block for block in BLOCKS if any(command.startswith("saccade") for command in block)])
def test_commands(block: list[str], drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one folder: a later one may need what an earlier one wrote."""
    for command in block:
        if command.startswith("saccade export"):  # a graph is traced with symbols, which the checker of shapes takes for wrong numbers
            subprocess.run([sys.executable, "-m", "saccade.cli", *shlex.split(command)[1:]], check=True)
        elif command.startswith("saccade"):
            monkeypatch.setattr(sys, "argv", shlex.split(command))
            cli.main()


def test_make_targets_exist() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    targets = [command.split()[1] for command in COMMANDS if command.startswith("make ")]
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert f"\n{target}:" in makefile
