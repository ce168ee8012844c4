"""A TRAINING on Ray: Ray Train starts the processes, on as many machines as there are, and again after one of them dies.

The training itself is the one of every other start: it finds its place in the variables that Ray sets as torchrun does, and goes on from
OUT/last.pt, with any number of processes. So OUT and the data must be on a disk that all machines share.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.cluster import LOCAL, check_place, connected
from saccade.training.checkpoint import LAST
from saccade.training.processes import TIMEOUT_S, ProcessLost
from saccade.types import InputError

FUTILE = 3  # starts in a row that end before a checkpoint is written, after which the fault isn't a machine's
log = logging.getLogger("saccade")


@dataclass(frozen=True)
class RayTraining:
    """What to run, and with how much: WORK does the part of its process and returns in all of them."""

    work: Callable[[], object]
    out: Path
    workers: int = 0  # processes at the most, fewer if the cluster has no more; 0 = one for each GPU, or each core where there is none
    gpus: bool | None = None  # one for each process; None = if the cluster has any
    most: int = 1 << 16  # processes that can share the batch


def train_on_ray(training: RayTraining, where: str = "ray") -> None:
    """Run WORK in up to `workers` processes of the cluster WHERE (ray: that of this machine or RAY_ADDRESS; ray://HOST:10001).

    When a process or a machine dies, those that are left start again from the last checkpoint; when there are more again, so do they.
    InputError of any process is raised here; so are starts that lead nowhere.
    """
    if where == LOCAL:
        raise InputError(f"--on {where}: expected ray or ray://HEAD:10001")
    check_place(where)
    if training.workers < 0:
        raise InputError(f"--workers={training.workers} must be 0 or more: the processes that train together")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    import ray

    started = not ray.is_initialized()
    connected(where, show_output=True)
    try:
        if where.startswith("ray://"):  # from there the output folder is seen
            ray.get(ray.remote(num_cpus=0)(_until_done).remote(training))
        else:
            _until_done(training)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, InputError) else error from None
    finally:
        if started:
            ray.shutdown()


def _until_done(training: RayTraining) -> None:
    """Start after start, as long as each gets further than the one before."""
    from ray.train import TrainingFailedError

    futile = 0
    while True:
        before, reserved = _version(training.out / LAST), _reservations()
        try:
            _start(training)
            return
        except TrainingFailedError as error:
            _give_back(_reservations() - reserved)
            for failure in getattr(error, "worker_failures", {}).values():
                refused = _input_error(failure)
                if refused is not None:
                    raise refused from error
            futile = 0 if _version(training.out / LAST) != before else futile + 1
            if futile == FUTILE:
                reason = str(error).strip().splitlines()[-1]
                raise InputError(
                    f"training on Ray: {FUTILE} starts in a row ended before a checkpoint was written ({reason:.300}); see to that, or "
                    "lower --checkpoint-every; the same command goes on"
                ) from error
            log.warning("a process or machine was lost; starting again from the last checkpoint with what is left")


def _start(training: RayTraining) -> None:
    """One run of Ray Train: from one process, on whatever machine, to as many as were asked for. It ends when one of them dies.

    Where Ray counts on a machine that has just died, it waits a minute for it, and then counts again: that is its own affair.
    """
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    there = ray.cluster_resources()
    gpus = there.get("GPU", 0) > 0 if training.gpus is None else training.gpus
    workers = min(training.workers or int(there.get("GPU" if gpus else "CPU", 1)), training.most)
    size: Any = (1, workers)  # Ray's own stubs know only the older form
    TorchTrainer(
        _part,
        train_loop_config={"work": training.work},
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpus else "gloo", timeout_s=int(TIMEOUT_S)),
        scaling_config=ScalingConfig(num_workers=size, use_gpu=gpus),
        run_config=RunConfig(name="ray", storage_path=str(training.out), failure_config=FailureConfig(max_failures=0)),
    ).fit()


def _reservations() -> set[str]:
    """Names of what this program has reserved in the cluster; they end with that of its job."""
    import ray
    from ray.util import placement_group_table

    mine = ray.get_runtime_context().get_job_id()
    return {name for name, group in placement_group_table().items() if group["state"] != "REMOVED" and name.endswith(mine)}


def _give_back(names: set[str]) -> None:
    """Ray Train forgets what it has reserved when a process dies while it starts, and waits for it; its cleaner needs the dashboard."""
    from ray import PlacementGroupID
    from ray.util import remove_placement_group
    from ray.util.placement_group import PlacementGroup

    for name in names:
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(name))))


def _part(config: dict[str, Any]) -> None:
    """In every process; by name, so that Ray needn't copy more than WORK. What it returns stays there."""
    config["work"]()


def _version(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _input_error(failure: BaseException | None) -> InputError | None:
    """The InputError that FAILURE is, or was caused by; not that a process misses another one."""
    seen = 0
    while failure is not None and seen < 10:
        if isinstance(failure, InputError):
            return None if isinstance(failure, ProcessLost) else failure
        failure = getattr(failure, "_base_exc", None) or getattr(failure, "cause", None) or failure.__cause__
        seen += 1
    return None
