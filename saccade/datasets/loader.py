"""LANES -> BATCHES: this process's lanes step by step, read ahead by worker processes; the same batches with any number of them."""

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import TracebackType

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from saccade.config import round_up
from saccade.datasets.clips import Clip
from saccade.datasets.lanes import Lanes, LaneSettings
from saccade.datasets.recording import Dataset, Sampling
from saccade.detection.boxes import Target
from saccade.types import InputError

log = logging.getLogger("saccade")

ENOUGH_BOXES = 1000  # after which the share of vanished ones is reported


@dataclass(frozen=True, eq=False)
class Batch:
    """T frames of B clips. Labels are columns over all labelled frames: a tensor per frame would be slow to pass between processes."""

    frames: UInt8[Tensor, "T B channels height width"]
    dt: Float32[Tensor, "T B"]
    is_first: Bool[Tensor, "B"]  # reset the state of these slots before the clip
    labelled: Bool[Tensor, "T B"]
    boxes: Float32[Tensor, "n 4"]
    classes: Int64[Tensor, "n"]
    counts: tuple[int, ...]  # rows of every labelled frame, T before B
    names: tuple[str, ...]  # of the recordings
    ends_us: Int64[Tensor, "T B"]
    vanished: int = 0  # boxes that the augmentation moved out of the picture

    @property
    def targets(self) -> list[Target]:
        """Of the labelled frames, T before B, as `pick` orders them."""
        parts = zip(self.boxes.split(self.counts), self.classes.split(self.counts), strict=True) if self.counts else ()
        return [Target(boxes, classes) for boxes, classes in parts]

    def to(self, device: torch.device | str) -> "Batch":
        """Copy the frames to a device, asynchronously where memory is pinned. Labels and dt stay where they are: they decide shapes and are
        checked, and the device would have to be asked for them again.
        """
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in TENSORS}
        return replace(self, **moved)

    def pin_memory(self) -> "Batch":
        """Called by torch's DataLoader."""
        return replace(self, **{name: getattr(self, name).pin_memory() for name in TENSORS})


TENSORS = ("frames", "is_first")  # those that go to the device at once


def collate(clips: Sequence[Clip], height: int = 0, width: int = 0, multiple: int | tuple[int, int] = 1) -> Batch:
    """One slot per clip, zeros at the bottom and right, labels in the order of `pick`.

    Frames are at least HEIGHT x WIDTH and as large as the largest clip, rounded up to MULTIPLE, one number or (height, width).
    """
    lengths = {clip.frames.shape[:2] for clip in clips}
    if len(lengths) != 1:
        raise InputError(f"collate: clips must be at least one, of equal length and channels, got (length, channels) {sorted(lengths)}")
    (length, channels), *_ = lengths
    down, across = (multiple, multiple) if isinstance(multiple, int) else multiple
    rows = round_up(max(height, *(clip.frames.shape[2] for clip in clips)), down)
    columns = round_up(max(width, *(clip.frames.shape[3] for clip in clips)), across)
    frames = np.empty((length, len(clips), channels, rows, columns), np.uint8)
    for slot, clip in enumerate(clips):
        high, wide = clip.frames.shape[2:]
        frames[:, slot, :, :high, :wide] = clip.frames
        frames[:, slot, :, high:] = 0
        frames[:, slot, :, :high, wide:] = 0
    labelled = np.stack([clip.labelled for clip in clips], 1)
    waiting = [iter(clip.labels) for clip in clips]
    labels = [next(waiting[slot]) for slot in np.nonzero(labelled)[1]]
    return Batch(
        frames=torch.from_numpy(frames),
        dt=torch.from_numpy(np.stack([clip.dt for clip in clips], 1)),
        is_first=torch.tensor([clip.is_first for clip in clips]),
        labelled=torch.from_numpy(labelled),
        boxes=torch.from_numpy(np.concatenate([np.zeros((0, 4), np.float32), *(found.boxes for found in labels)])),
        classes=torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *(found.classes for found in labels)])),
        counts=tuple(len(found) for found in labels),
        names=tuple(clip.name for clip in clips),
        ends_us=torch.from_numpy(np.stack([clip.ends_us for clip in clips], 1)),
        vanished=sum(clip.vanished for clip in clips),
    )


class Loader:
    """Endless batches of BATCH lanes, or of those in MINE, where several processes share them.

    Close it, or use it in a `with`: then no worker outlives it. Iterating again begins at step 0 again.
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
        mine: range | None = None,
        workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        mine = range(batch) if mine is None else mine
        if not mine or not 0 <= mine[0] <= mine[-1] < batch or workers < 0:
            raise InputError(
                f"loader: batch={batch}, lanes {mine.start} to {mine.stop} of it, workers={workers}: expected at least one lane, within "
                "the batch, and no negative number of workers"
            )
        self.lanes = Lanes(dataset, sampling, settings, lanes=batch, length=length, seed=seed)
        self.workers, self.pin_memory = workers, pin_memory
        self.boxes = 0  # so far, those that vanished included
        self.vanished = 0
        self._steps = _BatchOfStep(self.lanes, mine, multiple)
        self._iterator: Iterator[Batch | InputError] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, first_step: int = 0) -> Iterator[Batch]:
        """From FIRST_STEP on: the same batches as if all steps before had been taken."""
        if first_step < 0:
            raise InputError(f"loader: first_step={first_step} must be at least 0")
        self.close()
        self._iterator = iter(
            DataLoader(
                self._steps,
                batch_size=None,  # a step is a batch already
                sampler=count(first_step),  # torch only iterates over it
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


class _BatchOfStep(TorchDataset):
    def __init__(self, lanes: Lanes, mine: range, multiple: int | tuple[int, int]) -> None:
        self.lanes, self.mine, self.multiple = lanes, mine, multiple

    def __getitem__(self, step: int) -> Batch | InputError:
        try:
            clips = [self.lanes.clip(lane, step) for lane in self.mine]
            return collate(clips, self.lanes.height, self.lanes.width, self.multiple)
        except InputError as error:  # torch would replace its text by the worker's traceback
            return error


def _start_worker(_: int) -> None:
    """Ctrl-C reaches every process of the terminal: the main one ends its workers, which must stay silent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _ignore_lost_connections
    torch.set_num_threads(1)


def _ignore_lost_connections(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The thread that passes tensors on fails like this if the main process ends meanwhile: nothing is wrong with the worker."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
