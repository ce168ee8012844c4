"""LANES -> BATCHES: this process's lanes step by step, read ahead by worker processes; the same batches with any number of them."""

import logging
import signal
import sys
from collections.abc import Iterator
from itertools import count
from types import TracebackType

import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from saccade.datasets.batch import Batch, collate
from saccade.datasets.lanes import Lanes, LaneSettings
from saccade.datasets.recording import Dataset, Sampling
from saccade.types import InputError

log = logging.getLogger("saccade")

ENOUGH_BOXES = 1000  # before the share of vanished ones says something


class Loader:
    """Endless batches from FIRST_STEP on. BATCH lanes of this process; of WORLD processes together they are one set of lanes.

    Close it, or use it in a `with`: then no worker outlives it. Iterating again begins at FIRST_STEP again.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampling: Sampling,
        settings: LaneSettings,
        *,
        batch: int,
        length: int,
        multiple: int | tuple[int, int] = 32,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        first_step: int = 0,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        if batch < 1 or not 0 <= rank < world or workers < 0 or first_step < 0:
            raise InputError(
                f"loader: batch={batch}, rank={rank} of world={world}, workers={workers}, first_step={first_step}: expected a batch of at "
                "least 1, a rank below the world's size, no negative numbers"
            )
        self.lanes = Lanes(dataset, sampling, settings, lanes=batch * world, length=length, seed=seed)
        self.first_step, self.workers, self.pin_memory = first_step, workers, pin_memory
        self.boxes = 0  # so far, those that vanished included
        self.vanished = 0
        self._steps = _Steps(self.lanes, range(rank * batch, (rank + 1) * batch), multiple)
        self._iterator: Iterator[Batch | InputError] | None = None

    def __iter__(self) -> Iterator[Batch]:
        self.close()
        self._iterator = iter(
            DataLoader(
                self._steps,
                batch_size=None,  # a step is a batch already
                sampler=count(self.first_step),  # torch asks no more of it than to be iterable
                num_workers=self.workers,
                pin_memory=self.pin_memory,
                worker_init_fn=_start_worker,
            )
        )
        for item in self._iterator:
            if isinstance(item, InputError):
                self.close()
                raise item
            self._count(item)
            yield item

    def close(self) -> None:
        """End the workers."""
        iterator, self._iterator = self._iterator, None
        if iterator is not None and self.workers:
            iterator._shutdown_workers()  # type: ignore[attr-defined]

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, batch: Batch) -> None:
        before = self.boxes
        self.boxes += sum(batch.counts) + batch.vanished
        self.vanished += batch.vanished
        if self.vanished and before < ENOUGH_BOXES <= self.boxes:
            log.warning("augmentation: %d of the first %d boxes left the picture by zooming and aren't learned", self.vanished, self.boxes)


class _Steps(TorchDataset):
    """Step -> batch."""

    def __init__(self, lanes: Lanes, mine: range, multiple: int | tuple[int, int]) -> None:
        self.lanes, self.mine, self.multiple = lanes, mine, multiple

    def __getitem__(self, step: int) -> Batch | InputError:
        try:
            clips = [self.lanes.clip(lane, step) for lane in self.mine]
            return collate(clips, self.lanes.height, self.lanes.width, self.multiple)
        except InputError as error:  # torch would raise it with the worker's traceback as its text
            return error


def _start_worker(_: int) -> None:
    """Ctrl-C reaches the whole group of processes: the main one ends its workers, they needn't say a word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _hook
    torch.set_num_threads(1)


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The thread that hands tensors over reports here if the main process goes in the middle of it: nothing is wrong with the worker."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
