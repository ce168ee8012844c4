"""Two processes with half of the batch each are one process with all of it; the environment says who is who."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from saccade.evaluation.validate import validate
from saccade.pool import Stopped
from saccade.training.log import Log, read_metrics
from saccade.training.processes import first_host, from_environment
from saccade.types import InputError
from saccade.weights.load import load_detector
from tests.training.make import run, toys, weights_file

TERMS = ("total", "iou", "objectness", "class")
SLOWLY = "learning_rate=0.00005"  # Adam's first steps make of gradients near zero, whose sign is noise, full steps
JOBS = {
    "everywhere.pt": (),  # every process has labels
    "one.pt": ("ordered=1", "every=11", "seed=4"),  # one of two processes has a labelled frame
    "none.pt": ("ordered=1", "every=1000"),  # nobody has any
    "uneven.pt": ("batch=5",),  # two clips here, three there
    "parts.pt": ("accumulation=2", "share_batch_norms=0"),
    "losses": ("steps=5", "validate_every=3", SLOWLY),
    "own": ("steps=3", "share_batch_norms=0"),
    "elastic": ("steps=8", SLOWLY),
}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(weights_file(tmp_path_factory.mktemp("weights")))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, weights: str) -> Path:
    """Folder of what two processes write for all jobs, in one go: to start them takes longer than what they compute.

    One process has begun the job `elastic` and was stopped by SIGTERM, which is what a cluster sends.
    """
    folder = tmp_path_factory.mktemp("both")
    original = Log.step

    def stop(self: Log, step: int, values: dict) -> None:
        original(self, step, values)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "step", stop)
        with pytest.raises(Stopped):
            run(folder / "elastic", weights, *JOBS["elastic"])
    assert 0 < len(read_metrics(folder / "elastic" / "metrics.jsonl")) < 8
    arguments: list[str] = []
    for name, changes in JOBS.items():
        arguments += ["--", str(folder / name), weights, f"port={free_port()}", *changes]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.make", *arguments[1:]]
    running = [
        subprocess.Popen(command, env={**common, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True) for rank in "01"
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["everywhere.pt", "one.pt", "none.pt", "uneven.pt"])
def test_two_processes_have_the_gradients_of_one_with_the_double_batch(tmp_path: Path, both: Path, weights: str, name: str) -> None:
    """And the same batch statistics, also where one of them has no labelled frame and the other has."""
    run(tmp_path / name, weights, *JOBS[name])
    one, two = (torch.load(folder / name, weights_only=True) for folder in (tmp_path, both))
    left, right = one.pop("labelled").bool().chunk(2)
    assert bool(left.any() ^ right.any()) == (name == "one.pt")
    for name, value in one.items():
        unit = max(float(value.abs().max()), 1e-6)
        torch.testing.assert_close(two[name] / unit, value / unit, rtol=0, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.thorough
def test_two_processes_have_the_losses_of_one_with_the_double_batch(tmp_path: Path, both: Path, weights: str) -> None:
    """And the same validation."""
    run(tmp_path / "losses", weights, *JOBS["losses"])
    alone, shared = (read_metrics(folder / "losses" / "metrics.jsonl") for folder in (tmp_path, both))
    assert [row["step"] for row in alone] == [row["step"] for row in shared] == [1, 2, 3, 3, 4, 5, 5]
    for one, two in zip(alone, shared, strict=True):
        terms = {name: one[name] for name in TERMS if name in one}
        assert {name: two[name] for name in terms} == pytest.approx(terms, rel=1e-3)
        assert two.get("positives") == one.get("positives")
        assert two.get("mAP") == pytest.approx(one.get("mAP"), abs=1e-3)


@pytest.mark.thorough
def test_processes_with_batch_norms_of_their_own_score_and_save_the_same_weights(both: Path) -> None:
    rows = read_metrics(both / "own" / "metrics.jsonl")
    again = validate(load_detector(both / "own" / "final.safetensors"), toys("val", 2))
    assert rows[-1]["mAP"] == pytest.approx(again.mAP, abs=1e-3)
    assert rows[-1]["recall"] == pytest.approx(again.recall, abs=1e-3)


@pytest.mark.thorough
def test_two_processes_go_on_from_one(tmp_path: Path, both: Path, weights: str) -> None:
    """Elastic: the checkpoint holds the states of all lanes, whoever had them."""
    run(tmp_path / "elastic", weights, *JOBS["elastic"])
    whole, parts = (read_metrics(folder / "elastic" / "metrics.jsonl") for folder in (tmp_path, both))
    assert [row["total"] for row in parts[:-1]] == pytest.approx([row["total"] for row in whole[:-1]], rel=1e-3)


@pytest.mark.thorough
def test_parts_of_two_processes_are_added_up_once(tmp_path: Path, both: Path, weights: str) -> None:
    """With batch norms of their own, four parts of a clip each are what two processes have in two parts each; the statistics differ."""
    run(tmp_path / "parts.pt", weights, "accumulation=4", "share_batch_norms=0")
    one, two = (torch.load(folder / "parts.pt", weights_only=True) for folder in (tmp_path, both))
    for name, value in one.items():
        if "running" not in name and "tracked" not in name:
            unit = max(float(value.float().abs().max()), 1e-6)
            torch.testing.assert_close(two[name] / unit, value / unit, rtol=0, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


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
