"""A data set in memory that a tiny detector learns in seconds, and a program that trains on it: `python -m tests.training.make OUT`."""

import os
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from saccade.config import BackboneConfig, DetectorConfig, MemoryConfig
from saccade.datasets.lanes import LaneSettings
from saccade.datasets.recording import BaseRecording, Clock, Dataset, GroundTruth, Sampling
from saccade.training.settings import TrainingSettings
from saccade.types import Labels

STEP_US = 50_000
SIDE = 64
BINS = 1


@dataclass(frozen=True)
class Toy(BaseRecording):
    """A bright square of 24 pixels that moves a pixel per frame to the right, or a dark one to the left; labelled in every Nth frame."""

    seed: int
    count: int = 40
    every: int = 2

    name = property(lambda self: f"toy{self.seed}")
    frame_size = property(lambda self: (SIDE, SIDE))

    def corner(self, index: int) -> tuple[int, int]:
        direction = 1 if self.kind == 0 else -1
        return (self.seed * 17 + direction * index) % (SIDE - 24), (self.seed * 11) % (SIDE - 24)

    @property
    def kind(self) -> int:
        return self.seed % 2

    def ends_us(self, sampling: Sampling) -> np.ndarray:
        return np.arange(1, self.count + 1, dtype=np.int64) * STEP_US

    def frames(self, ends_us: np.ndarray, sampling: Sampling) -> np.ndarray:
        frames = np.zeros((len(ends_us), 2 * sampling.bins, SIDE, SIDE), np.uint8)
        for frame, end_us in zip(frames, ends_us, strict=True):
            x, y = self.corner(int(end_us) // STEP_US)
            frame[self.kind * sampling.bins :, y : y + 24, x : x + 24] = 5
        return frames

    def windows(self, starts_us: np.ndarray, ends_us: np.ndarray, sampling: Sampling) -> np.ndarray:
        return self.frames(ends_us, sampling)

    @cached_property
    def truth(self) -> GroundTruth:
        labels = self._labels()
        return GroundTruth(labels, labels.t, Clock(STEP_US))

    def _labels(self) -> Labels:
        indices = np.arange(1, self.count + 1)
        indices = indices[(indices + 3 * self.seed) % self.every == 0]
        corners = np.array([self.corner(int(index)) for index in indices], np.float32).reshape(-1, 2)
        kinds = np.full(len(indices), self.kind, np.int64)
        # Said to stand still, to be counted as such, though they move: no lane may leave them out.
        still_us = np.where(indices > self.count // 2, 300_000, 0).astype(np.int64)
        return Labels(indices * STEP_US, np.concatenate([corners, corners + 24], 1), kinds, np.zeros_like(kinds), still_us)


def toys(split: str = "train", recordings: int = 4, **options: Any) -> Dataset:
    first = 0 if split == "train" else 100
    return Dataset("toys", split, ("bright", "dark"), [Toy(first + number, **options) for number in range(recordings)])


def tiny_config(**backbone: Any) -> DetectorConfig:
    dims: dict[str, Any] = {"channels": 2 * BINS, "dims": (8, 16, 32, 64), "head_dim": 8, "memory": MemoryConfig(timescales="clip")}
    return DetectorConfig(
        name="tiny", backbone=BackboneConfig(**{**dims, **backbone}), bottlenecks=1, head_width=16, bins=BINS, classes=("bright", "dark")
    )


def tiny_settings(**changes: Any) -> TrainingSettings:
    settings = TrainingSettings(
        steps=12,
        batch=4,
        length=4,
        learning_rate=2e-3,
        workers=0,
        threads=1,
        device="cpu",
        checkpoint_every=5,
        log=(),
        lanes=LaneSettings(seen_only=False),
    )
    return replace(settings, **changes)


def weights_file(folder: Path, **backbone: Any) -> Path:
    """Fresh tiny weights, to start a training from."""
    import torch

    from saccade.model.detector import Detector
    from saccade.weights.load import save_detector

    torch.manual_seed(0)
    path = folder / "tiny.safetensors"
    save_detector(Detector(tiny_config(**backbone)), path)
    return path


def save_gradients(out: Path, settings: TrainingSettings, data: Dataset) -> None:
    """Of the first two batches, with the state between them, and the batch statistics after them."""
    import torch

    from saccade.datasets.loader import Loader
    from saccade.training.objective import learn
    from saccade.training.processes import joined
    from saccade.training.shared import share_batch_norms, sharing_gradients
    from saccade.training.start import build_detector

    with joined("cpu") as processes:
        detector = build_detector(settings, data)
        if processes.world > 1:
            share_batch_norms(detector, settings.share_batch_norms)
        share: dict[str, Any] = {"seed": settings.seed, "batch": settings.batch, "mine": processes.lanes(settings.batch)}
        batches = iter(Loader(data, Sampling.of(detector.config), settings.lanes, **share, length=settings.length, workers=0))
        first, second = next(batches), next(batches)
        with sharing_gradients(detector, processes) as network:
            _, state = learn(network, first, detector.initial_state(first.frames), settings, processes)
            learn(network, second, state, settings, processes)
        found = {name: parameter.grad for name, parameter in detector.named_parameters()} | dict(detector.named_buffers())
        found["labelled"] = torch.cat(processes.gather(second.labelled.any(0)))
        if processes.rank == 0:
            torch.save(found, out)


def run(out: Path, weights: str, *changes: str) -> None:
    """A training into the folder OUT, or gradients into the file OUT.pt, with settings changed as `name=value`."""
    from saccade.training.loop import fit

    values: dict[str, Any] = {name: float(value) if "." in value else int(value) for name, value in (a.split("=") for a in changes)}
    values |= {name: bool(values[name]) for name in ("share_batch_norms", "recompute", "compile") if name in values}
    if "port" in values:
        os.environ["MASTER_PORT"] = str(values.pop("port"))
    data, kind = toys(every=values.pop("every", 2)), "ordered" if values.pop("ordered", 0) else "mixed"
    settings = tiny_settings(model=weights, lanes=LaneSettings(kind=kind, seen_only=False), **values)
    if out.suffix == ".pt":
        save_gradients(out, settings, data)
    else:
        fit(data, toys("val", 2), out, settings)


def main() -> None:
    """python -m tests.training.make OUT WEIGHTS [name=value ...] [-- OUT WEIGHTS [name=value ...]] ...: one after the other."""
    for job in " ".join(sys.argv[1:]).split(" -- "):
        out, weights, *changes = job.split()
        run(Path(out), weights, *changes)


if __name__ == "__main__":
    main()
