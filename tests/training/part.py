"""Two processes that meet, and part in ways that are hard: `python -m tests.training.part PORT PORT PORT PORT` prints what it is told."""

import gc
import os
import sys
import time

import torch
import torch.distributed as dist

from saccade.model.detector import Detector
from saccade.training import processes
from saccade.training.processes import ProcessLost, joined
from saccade.training.shared import sharing_gradients
from tests.training.make import tiny_config


def leave_while_sums_travel() -> None:
    """Torch's threads hold the numbers of the last sum, objects of Python, when all else is let go."""
    with joined("cpu") as here, sharing_gradients(Detector(tiny_config()), here) as network:
        time.sleep(here.rank)
        work = dist.all_reduce(torch.zeros(1), async_op=True)
        if here.rank:
            work.wait()
        del work
    del network
    gc.collect()


def lose(silent_s: float | None) -> None:
    """The second process says nothing for some time, or dies."""
    try:
        with joined("cpu") as here:
            if here.rank and silent_s is None:
                os._exit(0)
            time.sleep(here.rank * (silent_s or 0))
            here.add([torch.ones(1)])
    except ProcessLost as error:
        print(error, flush=True)


def main() -> None:
    for port in sys.argv[1:3]:
        os.environ["MASTER_PORT"] = port
        leave_while_sums_travel()
    print("left", flush=True)
    processes.TIMEOUT_S = 3.0
    for port, silent_s in zip(sys.argv[3:], (6.0, None), strict=True):
        os.environ["MASTER_PORT"] = port
        lose(silent_s)


if __name__ == "__main__":
    main()
