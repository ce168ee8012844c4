"""What the README shows, works: its Python runs, its commands print what it prints, its figures are those of the files they come from."""

import json
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

import saccade
from saccade import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RUN = re.findall(r"```bash\n(saccade .*?)\n```\n```\n(.*?)```", README, re.DOTALL)  # a command, and what it prints
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(ROOT / "saccade/samples/street.h5", tmp_path))


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    cli.main()


def test_it_can_be_read_in_a_sitting() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python(code: str, street: Path, capsys: pytest.CaptureFixture) -> None:
    exec(code, {})
    assert "'class': 'car'" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "printed"), RUN, ids=[command.split()[1] for command, _ in RUN])
def test_commands_print_what_it_says(
    command: str, printed: str, street: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """`info` to the letter; where a detector is at work numbers may differ by the machine, words may not."""
    run(command, monkeypatch)
    seen = capsys.readouterr().out
    if command.split()[1] != "info":
        seen, printed = (re.sub(r"[\d.,]+", "0", text) for text in (seen, printed))
    assert seen.strip() == printed.strip()


def test_three_commands_are_shown() -> None:
    assert [command.split()[1] for command, _ in RUN] == ["info", "detect", "view"]


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a minute of a free core; others may be at work on it
def test_the_first_training_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command after the other in one folder, as docs/get-started.md has them: a later one needs what an earlier one wrote."""
    monkeypatch.chdir(tmp_path)
    for command in commands("docs/get-started.md"):
        if command.startswith("saccade "):
            run(command, monkeypatch)
    assert {"streets_train.png", "run/final.safetensors", "scores/report.html"} <= {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")
    }


def test_install_lines_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [command for command in commands("README.md") if command.startswith("pip install")]
    assert installs[0].removeprefix("pip ") in makefile
    for extra in re.findall(r"\[(\w+)\]", " ".join(installs)):
        assert extra in EXTRAS


@pytest.mark.parametrize("page", ["README.md", "docs/get-started.md", "docs/contributing.md", "CONTRIBUTING.md"])
def test_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = (ROOT / page).read_text()
    targets = {command.split()[1] for command in commands(page) if command.startswith("make ")} | set(re.findall(r"`make (\w+)`", text))
    assert targets
    for target in targets:
        assert f"\n{target}:" in makefile


def test_extras_of_get_started_exist() -> None:
    table = re.search(r"\| extra \| for \|\n(.*?)\n\n", (ROOT / "docs/get-started.md").read_text(), re.DOTALL)
    assert table
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table[1].splitlines())))
    assert named <= EXTRAS.keys()
    assert EXTRAS.keys() - named <= {"test", "oracles", "benchmarks"}  # of developers


def test_one_version_everywhere() -> None:
    assert f"\nversion: {saccade.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {saccade.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert "://" not in target
        assert (ROOT / target.partition("#")[0]).exists(), f"no {target}"


def rows(text: str, first: str) -> list[str]:
    """Of the table whose first column is called so."""
    table = re.search(rf"^\| {re.escape(first)} \|.*?\n\n", text, re.DOTALL | re.MULTILINE)
    assert table, f"no table {first}"
    return table[0].strip().splitlines()[2:]


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_result_table_is_that_of_its_file(page: str) -> None:
    headline = json.loads((ROOT / "results/headline.json").read_text())
    expected = [
        f"| `{row['weights']}`: {row['memory']} | {row['map_20_hz']} | {row['map_200_hz']} | {row['drop'][0]} to {row['drop'][1]} "
        f"| {row['hidden_20_hz']} % | {row['hidden_200_hz']} % |"
        for row in headline["rows"]
    ]
    assert rows((ROOT / page).read_text(), "memory") == expected
    assert len(expected) <= 8


def test_scores_at_the_training_rate_are_those_of_table_1() -> None:
    """The headline's 20 Hz was scored again by others; both must agree."""
    table = (ROOT / "results/benchmark.md").read_text()
    measured = {name: float(value) for name, value in re.findall(r"^\| (RVT-B|gated S5, ours) \| ([\d.]+) \|", table, re.MULTILINE)}
    headline = {row["weights"]: row["map_20_hz"] for row in json.loads((ROOT / "results/headline.json").read_text())["rows"]}
    assert headline == {"nano-streets": measured["gated S5, ours"], "rvt-nano": measured["RVT-B"]}


def test_speeds_are_those_of_their_page() -> None:
    """Every number of the README's table is in one row of docs/speed.md, or in two of one table (what is compared has its own)."""
    table, page = rows(README, "speed, one thread"), (ROOT / "docs/speed.md").read_text()
    assert len(table) <= 6
    for row in table:
        _, _, ours, other, ratio, _ = row.split("|")
        numbers = [re.sub(r"[^\d.,]", "", part.split(" ", 1)[0]) for part in (ours.strip(), other.rpartition(", ")[2], ratio.strip())]
        found = [
            one for one in re.split(r"\n\n", page) if all(re.search(rf"(?<![\d.,]){re.escape(n)}(?![\d,]|\.\d)", one) for n in numbers)
        ]
        assert found, f"docs/speed.md has no table with {numbers}"


def test_what_it_says_of_real_recordings_is_in_the_results() -> None:
    said = re.search(r"Of (\d+) labelled boxes.*?finds (\d+)\s+at 20 Hz\s+and (\d+) at 200 Hz", README, re.DOTALL)
    assert said
    results = (ROOT / "docs/results.md").read_text()
    assert f"{said[1]} boxes; default options | `nano` {said[2]} at 20 Hz, {said[3]} at 200 Hz" in results
