"""Two processes with half of the batch each are one process with all of it; the environment says who is who."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from saccade.evaluation.validate import validate
from saccade.training.log import read_metrics
from saccade.training.processes import first_host, from_environment
from saccade.types import InputError
from saccade.weights.load import load_detector
from tests.training.make import toys, weights_file

TERMS = ("total", "iou", "objectness", "class")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def launch(out: Path, weights: Path, world: int, *changes: str) -> None:
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.make", str(out), str(weights), *changes]
    running = [
        subprocess.Popen(command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


def train(out: Path, weights: Path, world: int, *changes: str) -> list[dict]:
    """What the first of WORLD processes wrote."""
    launch(out, weights, world, *changes)
    return read_metrics(out / "metrics.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [(), ("ordered=1", "every=11", "seed=4")], ids=["labels everywhere", "a process without labels"])
def test_two_processes_have_the_gradients_of_one_with_the_double_batch(tmp_path: Path, changes: tuple[str, ...]) -> None:
    """And the same batch statistics, also where one of them has no labelled frame and the other has."""
    weights = weights_file(tmp_path)
    for world in (1, 2):
        launch(tmp_path / f"{world}.pt", weights, world, *changes)
    one, two = (torch.load(tmp_path / f"{world}.pt", weights_only=True) for world in (1, 2))
    left, right = one.pop("labelled").bool().chunk(2)
    assert bool(left.any() ^ right.any()) == bool(changes)
    for name, value in one.items():
        unit = max(float(value.abs().max()), 1e-6)
        torch.testing.assert_close(two[name] / unit, value / unit, rtol=0, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one_with_the_double_batch(tmp_path: Path) -> None:
    """And the same validation. The rate is low: Adam's first steps make of gradients near zero, whose sign is noise, full steps."""
    weights = weights_file(tmp_path)
    changes = ("steps=5", "validate_every=3", "learning_rate=0.00005")
    alone, both = (train(tmp_path / str(world), weights, world, *changes) for world in (1, 2))
    assert [row["step"] for row in alone] == [row["step"] for row in both] == [1, 2, 3, 3, 4, 5, 5]
    for one, two in zip(alone, both, strict=True):
        terms = {name: one[name] for name in TERMS if name in one}
        assert {name: two[name] for name in terms} == pytest.approx(terms, rel=1e-3)
        assert two.get("positives") == one.get("positives")
        assert two.get("mAP") == pytest.approx(one.get("mAP"), abs=1e-3)


@pytest.mark.slow
def test_processes_with_batch_norms_of_their_own_score_and_save_the_same_weights(tmp_path: Path) -> None:
    weights, out = weights_file(tmp_path), tmp_path / "own"
    rows = train(out, weights, 2, "steps=3", "share_batch_norms=0")
    again = validate(load_detector(out / "final.safetensors"), toys("val", 2))
    assert rows[-1]["mAP"] == pytest.approx(again.mAP, abs=1e-3)
    assert rows[-1]["recall"] == pytest.approx(again.recall, abs=1e-3)


@pytest.mark.slow
def test_two_processes_go_on_from_one(tmp_path: Path) -> None:
    """Elastic: the checkpoint holds the states of all lanes, whoever had them. SIGTERM is what a cluster sends."""
    weights, out = weights_file(tmp_path), tmp_path / "parts"
    changes = ("steps=8", "learning_rate=0.00005")
    whole = train(tmp_path / "whole", weights, 1, *changes)
    alone = subprocess.Popen([sys.executable, "-m", "tests.training.make", str(out), str(weights), *changes], stderr=subprocess.PIPE)
    while not read_metrics(out / "metrics.jsonl") and alone.poll() is None:
        time.sleep(0.02)
    alone.send_signal(signal.SIGTERM)
    alone.communicate(timeout=100)
    assert 0 < len(read_metrics(out / "metrics.jsonl")) < 8
    parts = train(out, weights, 2, *changes)
    assert [row["total"] for row in parts[:-1]] == pytest.approx([row["total"] for row in whole[:-1]], rel=1e-3)


def test_alone_without_torchrun_and_srun() -> None:
    assert from_environment({}) == {"rank": 0, "world": 1, "local_rank": 0, "local_world": 1}
    assert from_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"})["world"] == 1  # the batch script itself, not an srun step


def test_srun_names_the_first_host_and_a_port() -> None:
    found = from_environment(
        {
            "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
            "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_JOB_ID": "123456",
        }
    )  # fmt: skip
    assert found == {"rank": 5, "world": 8, "local_rank": 1, "local_world": 4, "address": "gpu07", "port": 20_000 + 123456 % 20_000}


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("gpu07", "gpu07"), ("gpu[07-09,12],big1", "gpu07"), ("a1,a2", "a1"), ("rack[3]-node", "rack3-node"), ("n-[1,4]", "n-1")],
)
def test_the_first_host_of_a_list(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def test_incomplete_variables_are_named() -> None:
    with pytest.raises(InputError, match="incomplete"):
        from_environment({"RANK": "one", "WORLD_SIZE": "2"})
    with pytest.raises(InputError, match="SLURM_PROCID"):
        from_environment({"SLURM_STEP_NUM_TASKS": "2"})
