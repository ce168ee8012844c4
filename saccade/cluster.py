"""PIECES OF WORK -> HERE OR ON RAY: the one place that decides where they run; the same function computes a piece, whoever calls it.

On Ray a piece is a task: one CPU, repeated elsewhere when its node is lost. Files are written by who computes them, into a folder that all
nodes share or into s3://; small results come back as they are done.
"""

import logging
import os
import pickle
import platform
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from saccade import pool
from saccade.files import Busy
from saccade.machine import check_extra
from saccade.pool import Outcome, Piece
from saccade.s3 import S3Path
from saccade.types import InputError

LOCAL = "local"
POLL_S = 0.5  # how often progress is passed on
TRIES = 10  # of a piece whose node or process is lost
LEASE_S = 120.0  # a lost node's lock on a shared folder lasts up to so long (NFS: 90 s)
GRACE_S = 10.0  # for pieces to end by themselves after Ctrl-C
PACKAGES = ("saccade-events", "numpy", "numba", "torch", "onnxruntime")  # on which the last digits of a result depend


def check_place(on: str) -> None:
    """InputError unless ON is local, ray or ray://HEAD:PORT, and what it needs is installed."""
    if on == LOCAL:
        return
    if on != "ray" and not on.startswith("ray://"):
        raise InputError(f"--on {on}: expected local, ray (the cluster of this machine) or ray://HEAD:10001")
    check_extra(f"--on {on}", "ray", "cluster")


def spread(
    work: Callable[[Piece], Outcome],
    pieces: Sequence[Piece],
    processes: int | None = None,
    *,
    on: str = LOCAL,
    heard: Callable[..., None] | None = None,
    begin: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
    what: str = "work",
    seen: Path | None = None,
    gpus: float = 0,
) -> Iterator[tuple[Piece, Outcome]]:
    """(piece, WORK(piece)) as they are done: in PROCESSES of this machine (None: one per core), or on a Ray cluster, on all it has.

    HEARD, BEGIN, ARGUMENTS and errors as in `pool.spread`, in both places. SEEN: a file that every node must see, or its results would be
    lost. GPUS: that each piece asks of Ray.
    """
    check_place(on)
    if on == LOCAL:
        here = processes or os.cpu_count() or 1
        yield from pool.spread(work, pieces, here, heard=heard, begin=begin, arguments=arguments, what=what)
    elif pieces:
        where = None if seen is None or isinstance(seen, S3Path) else seen.absolute()
        yield from _spread_on_ray(_Run(work, begin, arguments, where, Path.cwd(), _versions()), pieces, on, heard, what, gpus)


def patiently(work: Callable[[], Outcome]) -> Outcome:
    """WORK(), again while another process has what it writes: on a cluster that is an earlier try, whose node is about to vanish."""
    until = time.monotonic() + LEASE_S
    while True:
        try:
            return work()
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(1)


@dataclass(frozen=True)
class _Run:
    """What all pieces of a `spread` share; sent to a process once."""

    work: Callable[[Any], Any]
    begin: Callable[..., None] | None
    arguments: tuple[Any, ...]
    seen: Path | None
    folder: Path  # relative names start here
    versions: dict[str, str]


def _spread_on_ray(
    run: _Run, pieces: Sequence[Any], on: str, heard: Callable[..., None] | None, what: str, gpus: float
) -> Iterator[tuple[Any, Any]]:
    ray = connected(on)
    listener = _listener(ray) if heard is not None else None
    shared = [ray.put(run)]  # inside a list it stays a reference: a process fetches it once
    compute = ray.remote(_compute).options(num_cpus=1, num_gpus=gpus, max_retries=TRIES, name=what)
    left = {compute.remote(shared, listener, piece): piece for piece in pieces}
    try:
        while left:
            done, _ = ray.wait(list(left), timeout=POLL_S)
            _pass_on(ray, listener, heard)
            for reference in done:
                well, outcome = ray.get(reference)
                piece = left.pop(reference)
                if not well:
                    raise outcome
                yield piece, outcome
    except (ray.exceptions.RayError, ConnectionError) as error:
        reason = str(error).strip().splitlines()
        raise InputError(
            f"{what}: the cluster gave up a piece ({type(error).__name__}: {reason[0] if reason else ''}); were its processes ended for "
            "want of memory? Run the same command again: it goes on from here, there or with --on local"
        ) from error
    finally:
        _cancel(ray, list(left))
        _pass_on(ray, listener, heard)
        with suppress(Exception):
            ray.kill(listener)


def connected_gpus(on: str, device: str) -> int:
    """How many GPUs a piece that computes on DEVICE asks for: one if it must, or if it may and the cluster has any."""
    if device == "auto":
        return int(connected(on).cluster_resources().get("GPU", 0) > 0)
    return int(device.startswith("cuda"))


def connected(on: str, show_output: bool = False) -> Any:
    """The package ray, connected from now on: every further `spread` of this process finds its worker processes warm.

    SHOW_OUTPUT: what processes of the cluster print is printed here, too.
    """
    check_place(on)
    import ray

    if ray.is_initialized():
        return ray
    try:
        ray.init(address="auto" if on == "ray" else on, log_to_driver=show_output, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        mend = "start one with `ray start --head`, or name its head, --on ray://HEAD:10001" if on == "ray" else "is its head running?"
        reason = (str(error).strip().splitlines() or [""])[-1]  # of a traceback from there, what it ends with
        raise InputError(f"--on {on}: no Ray cluster answers ({reason:.200}); {mend}") from error
    return ray


class _Reports:
    """What pieces have reported and nobody has heard yet. A Ray actor."""

    def __init__(self) -> None:
        self._values: list[tuple[Any, ...]] = []

    def tell(self, values: list[tuple[Any, ...]]) -> None:
        self._values += values

    def take(self) -> list[tuple[Any, ...]]:
        taken, self._values = self._values, []
        return taken


def _listener(ray: Any) -> Any:
    """On the node that this program is connected to, which it needs anyway; anew if that is lost."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(_Reports).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def _pass_on(ray: Any, listener: Any, heard: Callable[..., None] | None) -> None:
    """Progress that is lost with a node is lost; the results aren't."""
    if listener is None or heard is None:
        return
    try:
        reports = ray.get(listener.take.remote(), timeout=GRACE_S)
    except ray.exceptions.RayError:
        return
    for values in reports:
        heard(*values)


def _cancel(ray: Any, left: list[Any]) -> None:
    """End what runs: KeyboardInterrupt in the pieces, so that no half file stays; those that don't heed it are killed."""
    with suppress(Exception):  # the cluster may be gone
        for reference in left:
            ray.cancel(reference, force=False)
        _, stubborn = ray.wait(left, num_returns=len(left), timeout=GRACE_S) if left else ([], [])
        for reference in stubborn:
            ray.cancel(reference, force=True)


def _versions() -> dict[str, str]:
    """Builds of one version (torch's +cpu, +cu130) count as equal."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package).partition("+")[0]
    return found


_current: list[Any] = []  # of a process of the cluster: the reference of the run that it has begun, and the run


def _compute(shared: list[Any], listener: Any, piece: Any) -> tuple[bool, Any]:
    """In a process of the cluster: (True, outcome) or (False, error), so that the error arrives as it was raised."""
    try:
        if not _current or _current[0] != shared[0]:
            _current[:] = shared[0], _begun(shared[0])
        teller = _Teller(listener)
        with pool.listening(teller):
            outcome = patiently(lambda: _current[1].work(piece))
        teller.flush()
        return True, outcome
    except Exception as error:
        if not isinstance(error, InputError):
            error.add_note(f"On node {socket.gethostname()}:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some errors can be raised, and not sent
            return False, RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        return False, error


def _begun(reference: Any) -> _Run:
    import ray

    run: _Run = ray.get(reference)
    where = f"node {socket.gethostname()} ({ray.util.get_node_ip_address()})"
    there = _versions()
    for package, wanted in run.versions.items():
        if there.get(package) != wanted:
            raise InputError(f"{where}: has {package} {there.get(package, 'not installed')}, this machine {wanted}; install the same there")
    if run.seen is not None and not run.seen.exists():
        raise InputError(f"{where}: doesn't see {run.seen.parent}; give a folder that all nodes share under one name, or s3://BUCKET/PATH")
    if run.folder.is_dir():
        os.chdir(run.folder)
    if run.begin is not None:
        run.begin(*run.arguments)
    return run


class _Teller:
    """Passes reports on at most every POLL_S."""

    def __init__(self, listener: Any) -> None:
        self._listener, self._last_s = listener, 0.0
        self._values: list[tuple[Any, ...]] = []

    def __call__(self, *values: Any) -> None:
        self._values += [values] if values else []
        if time.monotonic() - self._last_s > POLL_S:
            self.flush()

    def flush(self) -> None:
        if self._values and self._listener is not None:
            self._listener.tell.remote(self._values)
        self._values, self._last_s = [], time.monotonic()
