"""For tests of streams: detectors that find something everywhere, runtimes that are slow or compute nothing, portions of events."""

import json
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.config import presets
from saccade.detection.decode import Decoding
from saccade.export.runtime import TorchRuntime
from saccade.model.detector import Detector
from saccade.representation.windows import Grid
from saccade.stream.stream import Stream
from saccade.types import Detections, Events

WIDTH, HEIGHT = 64, 32
EVERYTHING: dict[str, Any] = {
    "decoding": Decoding(threshold=0.0, nms_iou=1.0, maximum=1000)
}  # every cell is a detection: nothing hides behind a threshold


def detector(name: str = "s5-vit-nano") -> Detector:
    """Untrained, with a head whose answers depend on what it sees and remembers."""
    torch.manual_seed(0)
    built = Detector(presets[name]()).eval()
    for scale in built.head.scales:
        for layer in (scale.objectness, scale.classes, scale.boxes):
            torch.nn.init.normal_(layer.weight, std=1.0)
            torch.nn.init.zeros_(layer.bias)
        with torch.no_grad():  # where nothing is seen all classes would be as likely, and the last bit would choose
            scale.classes.bias.copy_(torch.arange(len(scale.classes.bias)) / 10)
    return built


def events(n: int = 2000, *, start_us: int = 0, span_us: int = 400_000, seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> Events:
    random = np.random.default_rng(seed)
    t = start_us + np.sort(random.integers(0, span_us, n))
    return Events(t, random.integers(0, width, n).astype(np.uint16), random.integers(0, height, n).astype(np.uint16),
                  random.random(n) < 0.5, width, height)  # fmt: skip


def portions(whole: Events, count: int, seed: int = 0) -> list[Events]:
    """Anywhere cut, empty ones too."""
    borders = np.sort(np.random.default_rng(seed).integers(0, len(whole) + 1, count - 1)).tolist()
    return [whole[a:b] for a, b in pairwise([0, *borders, len(whole)])]


def assert_same(found: list[Detections], expected: list[Detections], within: float = 1e-4) -> None:
    """The same times, and every detection has its like."""
    assert [one.time_us for one in found] == [one.time_us for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        rows, wanted = (np.column_stack([each.boxes, each.scores, each.classes]) for each in (one, other))
        away = np.abs(rows[:, None] - wanted[None]).max(-1)
        if len(one):
            assert max(away.min(0).max(), away.min(1).max()) <= within, f"at {one.time_us} us"


class Slow(TorchRuntime):
    """A detector on a machine that takes its time; notes what it was asked."""

    def __init__(self, built: Detector, seconds: float) -> None:
        super().__init__(built)
        self.seconds = seconds
        self.dt: list[float] = []
        self.seen = 0  # events in the frames

    def step(self, frame: np.ndarray, state: Any, dt: float) -> Any:
        self.dt.append(dt)
        self.seen += int(frame.sum())
        time.sleep(self.seconds)
        return super().step(frame, state, dt)


class Idle:
    """Computes nothing, so that an hour passes in seconds."""

    def __init__(self) -> None:
        self.config = presets["s5-vit-nano"]()
        self.dt = 0.0  # in all

    def initial_state(self, height: int, width: int) -> Any:
        return np.zeros(1000)

    def step(self, frame: np.ndarray, state: Any, dt: float) -> Any:
        self.dt += dt
        return np.zeros((4, 5 + len(self.config.classes)), np.float32), np.zeros(1000)

    def prepare(self, dt: float) -> None:
        pass

    def state_to_arrays(self, state: Any) -> dict[str, np.ndarray]:
        return {"state": state}

    def state_from_arrays(self, arrays: Any) -> Any:
        return arrays["state"]


class Remembering(Idle):
    """As quick; its boxes depend on all that it has seen, and when."""

    def initial_state(self, height: int, width: int) -> Any:
        return np.zeros(3)

    def step(self, frame: np.ndarray, state: Any, dt: float) -> Any:
        seen = np.array([frame.sum(), frame[: len(frame) // 2].sum(), frame[..., ::2].sum()], np.float64)
        state = state * 0.9**dt + seen
        rows = np.full((3, 5 + len(self.config.classes)), 0.9, np.float32)
        rows[:, 0], rows[:, 1], rows[:, 2:4] = 5 + state % 50, 5 + state % 20, 8
        return rows, state


class Script:
    """A live source that does as it is told: yields events, sleeps for numbers, raises errors."""

    live, patient = True, False

    def __init__(self, *acts: Any) -> None:
        self.acts = acts
        self.closed = False

    def __iter__(self) -> Iterator[Events]:
        for act in self.acts:
            if isinstance(act, BaseException):
                raise act
            if isinstance(act, float):
                until_s = time.perf_counter() + act
                while time.perf_counter() < until_s and not self.closed:
                    time.sleep(0.01)
            else:
                yield act

    def close(self) -> None:
        self.closed = True

    def __repr__(self) -> str:
        return "script"


def main() -> None:
    """python -m tests.stream.streams idle|nano SECONDS RATE_HZ STEPPING: so many seconds of sparse events as fast as they go.

    Prints the growth of resident memory in the second half, ends that aren't the grid's next, and the time of a step in both halves.
    """
    kind, seconds, rate_hz, stepping = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    stream = Stream(Idle() if kind == "idle" else detector(), rate_hz, stepping="direct" if stepping == "direct" else "interleaved")
    grid = Grid.of_rate(rate_hz, 0)
    marks: list[tuple[float, float]] = []
    expected, off = None, 0
    for second in range(seconds):
        if second in (seconds // 10, (seconds + seconds // 10) // 2):
            marks.append(mark())
        for found in stream.push(events(20, start_us=second * 1_000_000, span_us=1_000_000, seed=second)):
            off += expected not in (None, found.time_us)
            expected = grid.end(grid.index(found.time_us) + 1)
    marks.append(mark())
    (_, first_s), (middle_mb, middle_s), (last_mb, last_s) = marks
    steps = stream.counters.steps
    times = {"first_half_s": middle_s - first_s, "second_half_s": last_s - middle_s}
    print(json.dumps({"growth_mb": last_mb - middle_mb, "resident_mb": last_mb, "steps": steps, "off_grid": off, **times}))


def mark() -> tuple[float, float]:
    """Resident megabytes, seconds of this process."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024, time.process_time()


if __name__ == "__main__":
    main()
