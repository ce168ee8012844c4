"""An evaluation in this process, and on Ray clusters of one and two nodes of one CPU on this machine: time, and whether numbers are equal.

`python -m benchmarks.cluster`. The processes of Ray are started before the clock is; a piece that does nothing shows what a piece costs.
"""

import os
import tempfile
import time
from pathlib import Path

from saccade.cluster import spread
from saccade.datasets.open import open_dataset
from saccade.evaluation.evaluate import evaluate
from saccade.evaluation.result import Evaluation
from saccade.evaluation.run.condition import Condition
from saccade.simulate.dataset import DatasetConfig, write_dataset

CONDITIONS = [Condition(), Condition(rate_hz=200)]
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
EMPTY = 200  # pieces


def nothing(number: int) -> int:
    return number


def numbers(evaluation: Evaluation) -> str:
    return repr([(one.scores, one.by_still_s, one.curves, one.ghosts, one.draws) for one in evaluation.results])


def run(folder: Path, on: str) -> tuple[float, str]:
    data = open_dataset(folder / "streets", "test")
    with tempfile.TemporaryDirectory(dir=folder) as out:
        started = time.perf_counter()
        found = evaluate("nano", data, CONDITIONS, out=Path(out), on=on)
        return time.perf_counter() - started, numbers(found)


def main() -> None:
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    import ray
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_dataset(folder / "streets", DatasetConfig(recordings=4, seconds=1.0, split="test"), processes=1)
        run(folder, "local")  # compiles
        here_s, here = run(folder, "local")
        print(f"local, one process: {here_s:.1f} s", flush=True)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        os.environ["RAY_ADDRESS"] = cluster.address
        for workers in (1, 2):
            if workers == 2:
                cluster.add_node(**NODE)
            run(folder, "ray")  # starts its processes
            seconds, there = run(folder, "ray")
            again_s, _ = run(folder, "local")
            started = time.perf_counter()
            assert len(list(spread(nothing, range(EMPTY), on="ray"))) == EMPTY
            empty_ms = (time.perf_counter() - started) / EMPTY * 1000
            same = "equal" if there == here else "DIFFERENT"
            said = f"{seconds:.1f} s, local again {again_s:.1f} s, numbers {same}; {empty_ms:.1f} ms a piece that does nothing"
            print(f"ray, {workers} worker{'s' * (workers > 1)}: {said}", flush=True)
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
