"""A training on Ray survives the loss of a process and of a machine: it goes on from the last checkpoint, with what is left."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from saccade.training.log import read_metrics
from saccade.training.on_ray import RayTraining, train_on_ray
from saccade.types import InputError
from tests.training.make import run, weights_file

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.thorough
STEPS = ("steps=14", "checkpoint_every=2", "learning_rate=0.00005")


def work(out: Path, weights: str, pause_s: float) -> None:
    """The training of one process, slowed down so that there is something to interrupt; says who it is and how many there are."""
    from saccade.training.log import Log

    place = out / f"process{os.environ['RANK']}"
    place.write_text(f"{os.getpid()} {os.environ['WORLD_SIZE']}")
    with (out / "starts").open("a") as file:
        file.write(os.environ["WORLD_SIZE"] + "\n")
    original = Log.step

    def slow(self: Log, step: int, values: dict) -> None:
        original(self, step, values)
        time.sleep(pause_s)

    Log.step = slow  # type: ignore[method-assign]
    run(out / "run", weights, *STEPS)


def refuse(out: Path) -> None:
    raise InputError("mine: is wrong; mend it")


def die(out: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(what: str, condition: object, seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Two machines of one core, as far as Ray knows."""
    pytest.importorskip("ray")
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 starves on a busy machine
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # processes of the nodes import this saccade
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # its hooks crash what Ray's server for clients forks, on a busy machine
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.client = f"ray://127.0.0.1:{port}"
        cluster.second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def train_from_outside(where: str, weights: str, out: str) -> None:
    """In a process that belongs to no cluster."""
    with pytest.raises(InputError, match=r"^mine: is wrong; mend it$"):
        train_on_ray(RayTraining(partial(refuse, Path(out)), Path(out), workers=1), where)
    train_on_ray(RayTraining(partial(work, Path(out), weights, 0.0), Path(out) / "run", workers=1), where)


def test_a_training_is_started_from_outside(tmp_path: Path, cluster: object) -> None:
    """By ray://HEAD:PORT: who asks needn't see the output folder, and errors arrive as they are."""
    weights = str(weights_file(tmp_path))
    run(tmp_path / "whole", weights, *STEPS)
    (tmp_path / "ray" / "run").mkdir(parents=True)
    call = f"from tests.training.test_on_ray import train_from_outside as t; t(*{(cluster.client, weights, str(tmp_path / 'ray'))!r})"  # type: ignore[attr-defined]
    ended = subprocess.run([sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr[-3000:]
    whole, there = (read_metrics(folder / "metrics.jsonl") for folder in (tmp_path / "whole", tmp_path / "ray" / "run"))
    assert [(row["step"], row.get("total")) for row in there] == [(row["step"], row.get("total")) for row in whole]


def test_a_lost_process_and_a_lost_machine_change_no_loss(tmp_path: Path, cluster: object) -> None:
    weights = str(weights_file(tmp_path))
    run(tmp_path / "whole", weights, *STEPS)
    out = tmp_path / "ray"
    (out / "run").mkdir(parents=True)
    failed: list[BaseException] = []

    def train() -> None:
        try:
            train_on_ray(RayTraining(partial(work, out, weights, 0.5), out / "run", workers=2))
        except BaseException as error:
            failed.append(error)

    def steps() -> int:
        return len(read_metrics(out / "run" / "metrics.jsonl"))

    def starts() -> list[str]:
        return (out / "starts").read_text().split() if (out / "starts").exists() else []

    thread = threading.Thread(target=train)
    thread.start()
    wait_for("the first steps", lambda: failed or steps() >= 4)
    assert not failed
    os.kill(int((out / "process1").read_text().split()[0]), signal.SIGKILL)
    wait_for("two processes again", lambda: failed or (len(starts()) == 4 and steps() >= 8))
    assert starts() == ["2"] * 4
    cluster.remove_node(cluster.second, allow_graceful=False)  # type: ignore[attr-defined]
    thread.join(600)
    assert not thread.is_alive()
    assert not failed
    assert starts()[4:] == ["1"]
    whole, parts = (read_metrics(folder / "metrics.jsonl") for folder in (tmp_path / "whole", out / "run"))
    assert [row["step"] for row in parts] == [row["step"] for row in whole]
    assert [row["total"] for row in parts[:-1]] == pytest.approx([row["total"] for row in whole[:-1]], rel=1e-3)
    assert (out / "run" / "final.safetensors").exists()


@pytest.mark.usefixtures("cluster")
def test_wrong_input_is_said_once_and_a_fault_that_stays_ends(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mine: is wrong; mend it"):
        train_on_ray(RayTraining(partial(refuse, tmp_path), tmp_path, workers=1))
    with pytest.raises(InputError, match="3 starts in a row ended before a checkpoint"):
        train_on_ray(RayTraining(partial(die, tmp_path), tmp_path, workers=1))


def test_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected local, ray"):
        train_on_ray(RayTraining(partial(refuse, tmp_path), tmp_path, workers=1), "slurm")
