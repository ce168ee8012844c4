"""Two processes with half of the batch each are one process with all of it; the environment says who is who."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.distributed import TCPStore

from saccade.evaluation.validate import validate
from saccade.pool import Stopped
from saccade.training import processes
from saccade.training.log import Log, read_metrics
from saccade.training.processes import ProcessLost, first_host, from_environment, joined
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


def meetings(count: int) -> list[TCPStore]:
    """Servers of this process for two others to meet at, as torchrun has one: a port that is free now needn't be so later."""
    return [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(count)]


def two_processes(folder: Path, *module_and_arguments: str) -> list[str]:
    """What each of them prints."""
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    command = [sys.executable, "-X", "faulthandler", "-m", *module_and_arguments]
    running = []
    for rank in "01":
        with (folder / rank).open("w") as out, (folder / f"{rank}.errors").open("w") as errors:
            running.append(subprocess.Popen(command, env={**common, "RANK": rank, "LOCAL_RANK": rank}, stdout=out, stderr=errors))
    until = time.monotonic() + 300
    while {process.poll() for process in running} in ({None}, {None, 0}) and time.monotonic() < until:
        time.sleep(0.1)
    codes = [process.poll() for process in running]
    for process in running:  # one that hangs, or waits for one that failed, says where it is
        process.send_signal(signal.SIGABRT)
        process.wait()
    assert codes == [0, 0], "\n".join((folder / f"{rank}.errors").read_text() for rank in "01")
    return [(folder / rank).read_text() for rank in "01"]


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
    servers = meetings(len(JOBS))
    for server, (name, changes) in zip(servers, JOBS.items(), strict=True):
        arguments += ["--", str(folder / name), weights, f"port={server.port}", *changes]
    two_processes(folder, "tests.training.make", *arguments[1:])
    return folder


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


def test_processes_with_batch_norms_of_their_own_score_and_save_the_same_weights(both: Path) -> None:
    rows = read_metrics(both / "own" / "metrics.jsonl")
    again = validate(load_detector(both / "own" / "final.safetensors"), toys("val", 2))
    assert rows[-1]["mAP"] == pytest.approx(again.mAP, abs=1e-3)
    assert rows[-1]["recall"] == pytest.approx(again.recall, abs=1e-3)


def test_two_processes_go_on_from_one(tmp_path: Path, both: Path, weights: str) -> None:
    """Elastic: the checkpoint holds the states of all lanes, whoever had them."""
    run(tmp_path / "elastic", weights, *JOBS["elastic"])
    whole, parts = (read_metrics(folder / "elastic" / "metrics.jsonl") for folder in (tmp_path, both))
    assert [row["total"] for row in parts[:-1]] == pytest.approx([row["total"] for row in whole[:-1]], rel=1e-3)


def test_parts_of_two_processes_are_added_up_once(tmp_path: Path, both: Path, weights: str) -> None:
    """With batch norms of their own, four parts of a clip each are what two processes have in two parts each; the statistics differ."""
    run(tmp_path / "parts.pt", weights, "accumulation=4", "share_batch_norms=0")
    one, two = (torch.load(folder / "parts.pt", weights_only=True) for folder in (tmp_path, both))
    for name, value in one.items():
        if "running" not in name and "tracked" not in name:
            unit = max(float(value.float().abs().max()), 1e-6)
            torch.testing.assert_close(two[name] / unit, value / unit, rtol=0, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


def test_processes_part_while_sums_travel_and_say_whom_they_miss(tmp_path: Path) -> None:
    """The first hung in torch: its threads wanted the GIL, and whoever had it waited for them. Then one that is late, and one that dies."""
    servers = meetings(4)
    told, other = two_processes(tmp_path, "tests.training.part", *(str(server.port) for server in servers))
    left, late, gone = told.splitlines()
    assert left == "left"
    assert "process 0 of 2 lost another one, or waited for it for 0.05 minutes (" in late
    assert "process 0 of 2 lost another one" in gone
    assert other.splitlines()[0] == "left"


def test_a_process_that_finds_no_other_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TIMEOUT_S", 1.0)
    (server,) = meetings(1)
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port)}
    for name, value in {**place, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ProcessLost, match=r"process 0 of 2 didn't find the others \(.*do all run"), joined("cpu"):
        pass
    assert not torch.distributed.is_initialized()


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
