"""Lanes: frames/s against plain decoding of the same recordings, and against what training the smallest detector needs.

    taskset -c 0 python -m benchmarks.lanes

In-process figures are CPU seconds, best of rounds in turn, because the machine is shared; the worker's are its own CPU seconds, too.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from saccade.config import presets
from saccade.datasets.augment import NO_AUGMENTATION
from saccade.datasets.lanes import Lanes, LaneSettings
from saccade.datasets.loader import Loader
from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import Clock, Dataset, GroundTruth, Sampling
from saccade.events.write import write_events
from saccade.model.detector import Detector
from saccade.types import Events, Labels

GEN1 = Path(__file__).resolve().parents[2] / "shared" / "data" / "gen1" / "clip_td.dat"
SAMPLING = Sampling()
LANES, LENGTH, ROUNDS = 4, 10, 3


def random_file(path: Path, rate: int, seconds: int, width: int = 160, height: int = 128) -> Path:
    """RATE events per second all over the sensor, and those of a bar that moves: pixels that fire together, as real ones do."""
    random = np.random.default_rng(0)
    n = rate * seconds
    t = np.sort(random.integers(0, seconds * 1_000_000, n))
    x = np.where(random.random(n) < 0.3, random.integers(0, width, n), (t // 10_000 + random.integers(0, 12, n)) % width)
    y, p = random.integers(0, height, n), random.integers(0, 2, n)
    write_events(Events(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.bool_), width, height), path)
    return path


def truth(start_us: int, end_us: int, every_us: int, width: int, height: int, scale: float) -> GroundTruth:
    """Three boxes every so often."""
    instants_us = np.arange(start_us, end_us + 1, every_us)
    t = np.repeat(instants_us, 3)
    boxes = np.tile(np.array([[5, 5, 40, 40], [60, 50, 90, 100], [100, 20, 130, 60]], np.float32), (len(instants_us), 1))
    labels = Labels(t, boxes, np.zeros(len(t), np.int64), np.zeros(len(t), np.int64))
    return GroundTruth(labels, instants_us, Clock(start_us))


def best(calls: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Name -> frames per CPU second."""
    speed = dict.fromkeys(calls, 0.0)
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            began = time.process_time()
            frames = call()
            speed[name] = max(speed[name], frames / (time.process_time() - began))
    return speed


def decode(dataset: Dataset) -> int:
    """Clips from all over the recordings, and nothing else."""
    frames = 0
    for recording in dataset.recordings:
        ends_us = recording.ends_us(SAMPLING)
        for first in range(0, len(ends_us) - LENGTH + 1, LENGTH * len(dataset.recordings)):
            frames += len(recording.frames(ends_us[first : first + LENGTH], SAMPLING))
    return frames


def clips(dataset: Dataset, steps: int, settings: LaneSettings) -> int:
    lanes = Lanes(dataset, SAMPLING, settings, lanes=LANES, length=LENGTH, seed=0)
    return sum(len(lanes.clip(lane, step).frames) for step in range(steps) for lane in range(LANES))


def batches(dataset: Dataset, steps: int) -> int:
    loader = Loader(dataset, SAMPLING, LaneSettings(), batch=LANES, length=LENGTH, workers=0)
    return sum(batch.labelled.numel() for batch in islice(loader, steps))


def with_worker(dataset: Dataset, steps: int) -> tuple[float, float]:
    """Frames per second of the wall that one worker brings, and CPU ms per frame that the main process spends on taking them."""
    with Loader(dataset, SAMPLING, LaneSettings(), batch=LANES, length=LENGTH, workers=1) as loader:
        source = iter(loader)
        list(islice(source, 3))
        wall, own = time.perf_counter(), time.process_time()
        frames = sum(batch.labelled.numel() for batch in islice(source, steps))
        return frames / (time.perf_counter() - wall), 1000 * (time.process_time() - own) / frames


def consumption(height: int, width: int) -> float:
    """Frames per CPU second of a training step, forward and backward, of s5-vit-nano."""
    detector = Detector(presets["s5-vit-nano"]())
    shape = (LENGTH, LANES, 20, *detector.config.backbone.padded(height, width))
    frames = torch.randint(0, 3, shape, dtype=torch.uint8)

    def step() -> int:
        pyramid, _ = detector.encode(frames, detector.initial_state(frames), torch.ones(LENGTH, LANES))
        predictions = detector.detect(tuple(level.flatten(0, 1) for level in pyramid))
        (predictions.boxes.square().mean() + predictions.objectness.mean() + predictions.classes.mean()).backward()
        return LENGTH * LANES

    speeds = []
    for _ in range(2):
        began = time.process_time()
        speeds.append(step() / (time.process_time() - began))
    return max(speeds)


def report(title: str, dataset: Dataset, steps: int) -> None:
    height, width = dataset.recordings[0].height, dataset.recordings[0].width
    speed = best(
        {
            "plain decoding": partial(decode, dataset),
            "ordered lanes, no augmentation": partial(clips, dataset, steps, LaneSettings(kind="ordered", augment=NO_AUGMENTATION)),
            "ordered lanes": partial(clips, dataset, steps, LaneSettings(kind="ordered")),
            "random lanes": partial(clips, dataset, steps, LaneSettings(kind="random")),
            "batches, mixed lanes": partial(batches, dataset, steps),
        }
    )
    print(f"\n### {title}: {width} x {height}, {LANES} lanes, clips of {LENGTH}\n\n| | frames/s | of plain decoding |\n|---|--:|--:|")
    for name, frames in speed.items():
        print(f"| {name} | {frames:.0f} | {frames / speed['plain decoding']:.2f} |")
    brought, taking_ms = with_worker(dataset, 2 * steps)
    needed = consumption(height, width)
    print(f"\nOne worker brings {brought:.0f} frames/s (wall; the main process spends {taking_ms:.3f} ms on each); ", end="")
    print(f"training s5-vit-nano needs {needed:.0f} frames/s on one core: {brought / needed:.1f} times as many")


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        made = partial(truth, 0, 19_000_000, 100_000)
        for suffix in ("dat", "h5"):
            for rate in (100_000, 1_000_000):
                path = random_file(Path(folder) / f"{rate}.{suffix}", rate, 20)
                recordings = [EventRecording(f"{suffix} {i}", path, made) for i in range(3)]
                report(f"{suffix.upper()}, {rate / 1e6:g} M events/s", Dataset("made", "train", ("car",), recordings), 10)
        if GEN1.is_file():
            real = EventRecording("gen1", GEN1, partial(truth, 20_600_000, 21_700_000, 250_000))
            report("Gen1, real, 1.3 M events/s", Dataset("gen1", "train", ("car",), [real]), 3)


if __name__ == "__main__":
    main()
