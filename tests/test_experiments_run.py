"""A table in a tiny configuration: killed, interrupted and taken up again, it loses nothing and ends in Markdown and a plot."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import command, mixers
from saccade.simulate.dataset import DatasetConfig, write_dataset
from saccade.training.log import read_metrics

TINY = ["--steps", "6", "--batch", "2", "--length", "4", "--recordings", "1", "--workers", "0", "--threads", "1"]
CELLS = ["s5", "s5-convnext", "s5-ssm2d"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "tiny"
    write_dataset(folder, DatasetConfig(recordings=10, seconds=0.3, width=64, height=64), processes=1)
    return folder


def arguments(data: Path, folder: Path) -> list[str]:
    return ["--data", str(data), "--runs", str(folder / "runs"), "--out", str(folder / "results"), *TINY]


def start(data: Path, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.mixers", *arguments(data, folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(process: subprocess.Popen, happened: object) -> None:
    assert callable(happened)
    until = time.monotonic() + 200
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "it didn't get there"
        time.sleep(0.01)


def steps(folder: Path, cell: str) -> int:
    found = list((folder / "runs" / "synthetic").glob(f"{cell}-????????/metrics.jsonl"))
    return len(read_metrics(found[0])) if found else 0


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "results" / "mixers").glob("*.json"))}


@pytest.mark.slow
def test_killed_and_interrupted_it_goes_on_with_the_first_unfinished_cell(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = next((data / "test").glob("*.h5"))
    before = lost.read_bytes()
    lost.unlink()  # as if the simulation had been interrupted

    killed = start(data, tmp_path)
    wait_for(killed, lambda: steps(tmp_path, "s5") >= 2)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert lost.read_bytes() == before
    assert results(tmp_path) == {}

    interrupted = start(data, tmp_path)
    wait_for(interrupted, lambda: steps(tmp_path, "s5-convnext") >= 1)
    interrupted.send_signal(signal.SIGINT)
    said, _ = interrupted.communicate(timeout=100)
    assert interrupted.returncode == 130, said
    assert "the same command goes on" in said
    first = results(tmp_path)
    assert len(first) == 1
    page = (tmp_path / "results" / "mixers.md").read_text()
    assert "1 of 3 cells were run" in page
    assert page.count("not run") >= 6

    assert run(monkeypatch, *arguments(data, tmp_path)) == 0
    assert "1 of 3, s5:" not in capsys.readouterr().out, "a finished cell was run again"
    every = results(tmp_path)
    assert {name: every[name] for name in first} == first
    assert sorted(json.loads(value)["cell"] for value in every.values()) == CELLS
    for value in every.values():
        found = json.loads(value)
        assert found["training"]["steps"] == 6
        assert found["training"]["seconds"] > 0
        assert found["step_ms"] > 0
        assert found["scoring"]["labels"] > 0
        assert found["conditions"]["sliding-direct-20Hz"]["mAP"] >= 0
    page = (tmp_path / "results" / "mixers.md").read_text()
    assert "not run" not in page
    assert "| S5-ConvNext-B |" in page
    assert "45.92" in page
    assert (tmp_path / "results" / "mixers.png").read_bytes()[:4] == b"\x89PNG"


def run(monkeypatch: pytest.MonkeyPatch, *given: str) -> int:
    monkeypatch.setattr(sys, "argv", ["experiments/mixers.py", *given])
    with pytest.raises(SystemExit) as ended:
        command.main(mixers.experiment)
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_cells_can_be_trained_now_and_scored_later(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*arguments(data, tmp_path), "--cells", CELLS[0], "--steps", "1"]
    assert run(monkeypatch, *given, "--train-only") == 0
    assert list((tmp_path / "runs").rglob("final.safetensors"))
    assert not results(tmp_path)
    assert not (tmp_path / "results").exists(), "a table of other settings would be replaced by one without numbers"
    assert run(monkeypatch, *given, "--list") == 0
    assert "s5                               trained" in capsys.readouterr().out


@pytest.mark.slow
def test_weights_of_the_same_training_are_scored_and_not_trained_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*arguments(data, tmp_path), "--cells", CELLS[0]]
    assert run(monkeypatch, *given, "--train-only") == 0
    (trained,) = (tmp_path / "runs").rglob("final.safetensors")
    kept = trained.rename(tmp_path / "kept.safetensors")
    elsewhere = [*arguments(data, tmp_path / "elsewhere"), "--cells", CELLS[0], "--weights", str(kept)]
    assert run(monkeypatch, *elsewhere) == 0
    assert not list((tmp_path / "elsewhere").rglob("metrics.jsonl"))
    (found,) = (json.loads(value) for value in results(tmp_path / "elsewhere").values())
    assert found["cell"] == CELLS[0]
    assert found["training"]["seconds"] is None
    assert "| trained before |" in (tmp_path / "elsewhere" / "results" / "mixers.md").read_text()
    capsys.readouterr()
    for wrong in (["--seed", "1"], ["--steps", "7"], ["--cells", CELLS[1]]):
        assert run(monkeypatch, *elsewhere, *wrong) == 2
        assert "trained for none of these cells" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cell_that_fails_keeps_nobody_from_being_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [*arguments(data, tmp_path), "--cells", *CELLS[:2], "--length", "50"]
    assert run(monkeypatch, *given) == 1
    page = (tmp_path / "results" / "mixers.md").read_text()
    assert page.count("failed: ") == 2
    assert page.count("lower the length") == 2
    assert "| s5-ssm2d | not run |" in page


def test_a_list_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--list", *arguments(tmp_path / "nowhere", tmp_path)) == 0
    said = capsys.readouterr().out
    assert said.count("not run") == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"), [(["--cells", "s6"], "there are s5, s5-convnext, s5-ssm2d"), (["--gen1", "nowhere"], "no such")]
)
def test_wrong_input_is_one_line(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *given) == 2
    written = capsys.readouterr()
    assert said in written.err
    assert written.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_quick_look_never_replaces_the_results() -> None:
    assert command.Options().folder == command.RESULTS
    for look in (command.Options(steps=2), command.Options(recordings=1), command.Options(seed=1)):
        assert look.folder == command.LOOKS
    assert command.Options(workers=3, threads=1).folder == command.RESULTS
    assert os.fspath(command.Options(steps=2, out=Path("elsewhere")).folder) == "elsewhere"
