"""A data set of events for tests of evaluations: a square moves over a small sensor, labelled 200 times a second."""

import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import Clock, Dataset, GroundTruth
from saccade.evaluation.run.condition import Condition
from saccade.events.write import write_events
from saccade.model.detector import Detector
from saccade.types import Events, Labels
from tests.training.make import tiny_config

WIDTH, HEIGHT, BOX = 64, 32, 20
SHARPNESS = 1000.0  # of the head, whose fresh weights find everything equally likely
START_US = 7_200_000_000  # hours after the clock's zero: float32 times would be off by seconds


def corners(times_us: np.ndarray, seed: int) -> np.ndarray:
    since_s = (times_us - START_US) / 1e6
    x = (WIDTH - BOX) / 2 * (1 + np.sin(2 * since_s + seed))
    y = (HEIGHT - BOX) / 2 * (1 + np.cos(1.3 * since_s + seed))
    return np.stack([x, y], 1)


def truth_of(seed: int, seconds: float, rate_hz: float, width: int, height: int, scale: float) -> GroundTruth:
    instants_us = START_US + (np.arange(1, int(seconds * rate_hz) + 1) * 1e6 / rate_hz).astype(np.int64)
    places = corners(instants_us, seed)
    seen = instants_us % 1_000_000 < 900_000  # every tenth instant is labelled as empty
    n = int(seen.sum())
    labels = Labels(
        instants_us[seen],
        np.concatenate([places, places + BOX], 1)[seen].astype(np.float32),
        np.full(n, seed % 2),
        np.zeros(n, np.int64),
        still_us=np.where(instants_us[seen] % 2_000_000 < 1_000_000, 0, 400_000),
    )
    return GroundTruth(labels, instants_us, Clock(int(instants_us[0]) if len(instants_us) else 0))


def recording(folder: Path, seed: int, seconds: float = 2.0, rate_hz: float = 200.0, events_per_s: int = 4000) -> EventRecording:
    path = folder / f"square{seed}.h5"
    if not path.exists():
        random = np.random.default_rng(seed)
        t = START_US + np.sort(random.integers(0, int(seconds * 1e6), int(seconds * events_per_s)))
        place = corners(t, seed) + random.uniform(0, BOX, (len(t), 2))
        write_events(Events(t, *place.astype(np.uint16).T, random.random(len(t)) < 0.5, WIDTH, HEIGHT), path)
    return EventRecording(f"part/square{seed}", path, partial(truth_of, seed, seconds, rate_hz))


def squares(folder: Path, count: int = 3, **options: Any) -> Dataset:
    folder.mkdir(parents=True, exist_ok=True)
    parts = [recording(folder, seed, **{"seconds": 0.8 + 0.2 * seed, **options}) for seed in range(count)]
    return Dataset("squares", "test", ("bright", "dark"), parts)


def untrained(seed: int = 0, **backbone: Any) -> Detector:
    """Whose objects are anywhere, with scores that depend on what it sees and remembers."""
    torch.manual_seed(seed)
    detector = Detector(tiny_config(**{"layer_scale": 1.0, **backbone})).eval()
    for scale in detector.head.scales:
        for layer in (scale.objectness, scale.classes):
            torch.nn.init.normal_(layer.weight, std=SHARPNESS)
            torch.nn.init.zeros_(layer.bias)
    return detector


def main() -> None:
    """python -m tests.evaluation.squares DATA OUT COUNT SECONDS LABELS_HZ PROCESSES RATE_HZ; prints progress, scores, MB at the end."""
    from saccade.evaluation.evaluate import evaluate

    signal.signal(signal.SIGINT, signal.default_int_handler)
    data, out, count, seconds, labels_hz, processes, rate_hz = sys.argv[1:]
    dataset = squares(Path(data), int(count), seconds=float(seconds), rate_hz=float(labels_hz), events_per_s=50)
    done, resident = [0.0], [0]

    def progress(name: str, seconds: float) -> None:
        done[0] += seconds
        resident[0] = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) // 1024
        print(f"{done[0]:.1f}", flush=True)

    result = evaluate(untrained(), dataset, [Condition(rate_hz=float(rate_hz))], out=Path(out), processes=int(processes), progress=progress)
    print(repr(result.results[0].scores))
    print(resident[0])


if __name__ == "__main__":
    main()
