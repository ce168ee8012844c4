"""On a real Ray cluster of two nodes every number is that of a local run, also when a node is killed; errors arrive as they are."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import command, stages
from saccade.cluster import check_place, spread
from saccade.datasets.check import check_dataset
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.evaluation.evaluate import evaluate
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.store import answers_at
from saccade.simulate.dataset import DatasetConfig, write_dataset
from saccade.types import InputError
from tests.evaluation.squares import squares, untrained
from tests.evaluation.test_evaluate import numbers
from tests.test_pool import begin, begun, square

ROOT = Path(__file__).parents[1]
SIZE = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
STREETS = DatasetConfig(recordings=10, seconds=0.3, width=64, height=64)
CONDITIONS = [Condition(), Condition(rate_hz=200), Condition(rate_hz=100, window="disjoint")]


def test_other_places_are_refused() -> None:
    for on in ("rays", "ray:", "http://head", ""):
        with pytest.raises(InputError, match="expected local, ray"):
            check_place(on)
        with pytest.raises(InputError, match="expected local, ray"):
            list(spread(square, [1], on=on))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with one CPU each; `--on ray` finds them by RAY_ADDRESS."""
    pytest.importorskip("ray", reason="the extra cluster isn't installed")
    import ray
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))  # processes of the nodes import this saccade
    nodes = Cluster(initialize_head=True, head_node_args={**SIZE, "include_dashboard": False})
    nodes.add_node(**SIZE)
    os.environ["RAY_ADDRESS"] = nodes.address
    yield nodes
    del os.environ["RAY_ADDRESS"]
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def second(cluster: Any) -> Iterator[Callable[[], None]]:
    """What kills the second node, as a power cut would; there is one again afterwards."""
    node = next(iter(cluster.worker_nodes))
    yield lambda: cluster.remove_node(node, allow_graceful=False)
    if node not in cluster.worker_nodes:
        cluster.add_node(**SIZE)


def process_of(_: int) -> int:
    time.sleep(0.3)
    return os.getpid()


def refuse(number: int) -> int:
    if number == 1:
        raise InputError("drive.raw: wrong; expected another")
    time.sleep(60 * number)
    return number


def divide(number: int) -> float:
    return 1 / number


@pytest.mark.thorough
def test_pieces_reports_and_errors_are_those_of_local_processes(cluster: Any, tmp_path: Path) -> None:
    heard: list[tuple[Any, ...]] = []
    results = dict(spread(square, range(6), on="ray", heard=lambda *values: heard.append(values)))
    assert results == {number: number**2 for number in range(6)}
    assert sorted(heard) == [("done", number) for number in range(6)]
    assert all(words == ["hello"] for _, words in spread(begun, range(4), on="ray", begin=begin, arguments=("hello",)))
    assert len({process for _, process in spread(process_of, range(8), on="ray")}) == 2, "both nodes work"
    with pytest.raises(InputError, match=r"^drive.raw: wrong; expected another$"):  # and who sleeps is woken
        list(spread(refuse, [1, 2], on="ray"))
    with pytest.raises(ZeroDivisionError) as raised:
        list(spread(divide, [0], on="ray"))
    assert "On node" in raised.value.__notes__[0]
    with pytest.raises(InputError, match=r"doesn't see .*; give a folder that all nodes share"):
        list(spread(square, [1], on="ray", seen=tmp_path / "nowhere" / ".lock"))
    assert list(spread(square, [], on="ray")) == []


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.thorough
def test_simulated_prepared_and_checked_alike(cluster: Any, tmp_path: Path) -> None:
    for name, on in (("here", "local"), ("there", "ray")):
        write_dataset(tmp_path / name, STREETS, 1, on=on)
        assert prepare(open_dataset(tmp_path / name, "test"), tmp_path / f"{name}-frames", processes=1, on=on) == []
    assert files(tmp_path / "here") == files(tmp_path / "there")
    assert files(tmp_path / "here-frames").keys() == files(tmp_path / "there-frames").keys()
    streets = open_dataset(tmp_path / "here", "train")
    assert check_dataset(streets, on="ray") == check_dataset(streets)


@pytest.mark.thorough
def test_interrupted_there_it_is_finished_here(cluster: Any, tmp_path: Path) -> None:
    out = tmp_path / "streets"
    words = [sys.executable, "-m", "saccade.cli", "simulate", str(out), "--recordings", "10", "--seconds", "20", "--size", "64x64"]
    process = subprocess.Popen([*words, "--on", "ray"], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    wait_until(lambda: list(out.rglob("*.part.h5")), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 130, said
    assert not list(out.rglob("*.part*")), "a half file was left"
    assert not (out / ".lock").exists()
    subprocess.run([*words, "--processes", "1"], check=True, cwd=ROOT)
    assert len(list(out.rglob("*.h5"))) == 10


def wait_until(happened: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    until = time.monotonic() + 300
    while not happened():
        assert process is None or process.poll() is None, process.communicate() if process else ""
        assert time.monotonic() < until, "it didn't get there"
        time.sleep(0.02)


@pytest.mark.thorough
def test_a_node_is_killed_in_an_evaluation(cluster: Any, second: Callable[[], None], tmp_path: Path) -> None:
    data = squares(tmp_path / "squares", count=6, seconds=12.0)
    local = evaluate(untrained(), data, CONDITIONS, out=tmp_path / "local")
    killed: list[int] = []

    def kill(condition: str, seconds: float) -> None:
        under_way = list((tmp_path / "ray").rglob(".*.part.npz"))
        if not killed and len(under_way) == 2:  # one of them is on the node that goes
            second()
            killed.append(len(list((tmp_path / "ray").rglob("square*.npz"))))

    found = evaluate(untrained(), data, CONDITIONS, out=tmp_path / "ray", on="ray", progress=kill)
    assert killed
    assert killed[0] < 18, "nothing was left to do"
    assert numbers(found) == numbers(local)
    for condition in CONDITIONS:
        here, there = (list(answers_at(tmp_path / name, condition)) for name in ("local", "ray"))
        assert [pickle.dumps(answer) for answer in here] == [pickle.dumps(answer) for answer in there]
    assert not list((tmp_path / "ray").rglob("*.part*"))


def sweep(folder: Path, data: Path, on: str) -> list[str]:
    tiny = ["--steps", "30", "--batch", "2", "--length", "4", "--recordings", "1", "--workers", "0", "--threads", "1", "--device", "cpu"]
    return ["--data", str(data), "--runs", str(folder / "runs"), "--out", str(folder / "results"), "--on", on, "--cells", *CELLS, *tiny]


CELLS = ["lstm", "s5"]


def scores(folder: Path) -> dict[str, Any]:
    """All that a cell found, but for how long it took."""
    import json

    found = {path.name: json.loads(path.read_text()) for path in sorted((folder / "results").rglob("*.json"))}
    for one in found.values():
        del one["training"]["seconds"], one["scoring"]["seconds"]
        for condition in one["conditions"].values():
            del condition["steps_per_s"], condition["frames_per_s"]
    return found


@pytest.mark.thorough
def test_a_node_is_killed_in_a_sweep(cluster: Any, second: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Thread

    data = tmp_path / "data"
    write_dataset(data, STREETS, 1)
    killed = []

    def kill() -> None:
        wait_until(lambda: len(list((tmp_path / "ray").rglob("metrics.jsonl"))) == 2)  # both nodes train
        second()
        killed.append(True)

    killer = Thread(target=kill)
    killer.start()
    for name in ("ray", "local"):
        monkeypatch.setattr(sys, "argv", ["experiments/stages.py", *sweep(tmp_path / name, data, name)])
        with pytest.raises(SystemExit) as ended:
            command.main(stages.experiment)
        assert ended.value.code == 0
    killer.join()
    assert killed
    assert len(scores(tmp_path / "ray")) == 2
    assert scores(tmp_path / "ray") == scores(tmp_path / "local")
