"""Evaluations as values, for tests of what is made of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from saccade.evaluation.interval import packed
from saccade.evaluation.result import Answer, Cost, Evaluation, Metrics, Part, Result
from saccade.evaluation.run.condition import Condition
from saccade.types import Detections, Labels

CLASSES = ("car", "pedestrian", "two-wheeler")
RATES = (20.0, 40.0, 80.0, 100.0, 200.0)
STILL = ((0.0, 0.05), (0.05, 0.25), (0.25, 1.0), (1.0, 3.0), (3.0, math.inf))
SPEEDS = ((0.0, 1.0), (1.0, 20.0), (20.0, 60.0), (60.0, 120.0), (120.0, math.inf))


def scores(mAP: float, hidden: float = 41.0, **changes: Any) -> Metrics:
    values: dict[str, Any] = {
        "mAP": mAP,
        "ap50": min(100, 1.9 * mAP),
        "ap75": 0.8 * mAP,
        "classes": {name: mAP * share for name, share in zip(CLASSES, (1.3, 0.7, 1.0), strict=True)},
        "recall": 70.2,
        "recall_still": hidden,
        "frames": 2720,
        "labels": 6411,
        "still": 2102,
        "ap_small": 0.6 * mAP,
        "ap_medium": 1.1 * mAP,
        "ar100": 1.3 * mAP,
    }
    return Metrics(**(values | changes))


def curve(area: float) -> tuple[float, ...]:
    """A precision that falls with the recall, with about that area below it."""
    recall = np.linspace(0, 1, 101)
    return tuple((1 - recall ** max(area / max(1 - area, 0.01), 0.1)).tolist())


def result(mAP: float, hidden: float = 41.0, *, streaming: float | None = None, **condition: Any) -> Result:
    rate_hz = condition.get("rate_hz", 20.0)
    return Result(
        condition=Condition(**condition),
        scores=scores(mAP, hidden),
        cost=Cost(
            frames=int(136 * rate_hz),
            seconds=0.012 * 136 * rate_hz + 5,
            recorded_s=136.0,
            step_ms=None if streaming is None else 11.3,
            steps=int(136 * rate_hz),
        ),
        streaming=None if streaming is None else scores(streaming, hidden),
        age_ms=0.0,
        by_still_s=tuple(Part(*span, mAP * (1 - 0.15 * i), hidden * (1.6 - 0.3 * i), 3000 // (i + 1)) for i, span in enumerate(STILL)),
        by_speed_px_s=tuple(Part(*span, mAP * (0.8 + 0.1 * i), 40 + 8 * i, 1400 - 200 * i) for i, span in enumerate(SPEEDS)),
        curves={name: curve(min(0.95, mAP / 50 * share)) for name, share in zip(CLASSES, (1.1, 0.7, 0.9), strict=True)},
    )


def drawn_around(one: Result, spread: float = 2.0) -> Result:
    """With draws around its scores; those of equal spread move together, as the same recordings do."""
    wave = spread * np.sin(np.arange(1000))
    return replace(one, draws={name: packed(getattr(one.scores, name) + wave) for name in ("mAP", "ap50", "recall_still")})


def evaluation(**changes: Any) -> Evaluation:
    """The shape of the paper's table 2 with sliding, disjoint and interleaved frames."""
    table = {
        ("sliding", "direct"): ((31.2, 30.9, 30.2, 29.9, 28.8), (41.0, 40.2, 39.5, 39.1, 37.7)),
        ("sliding", "interleaved"): ((31.2, 31.2, 31.0, 31.1, 31.1), (41.0, 41.1, 40.8, 40.9, 40.9)),
        ("disjoint", "direct"): ((31.2, 27.4, 20.1, 17.6, 9.3), (41.0, 35.5, 26.2, 22.0, 11.1)),
    }
    results = tuple(
        result(mAP, hidden, streaming=mAP - 3, window=window, stepping=stepping, rate_hz=rate)
        for (window, stepping), rows in table.items()
        for rate, mAP, hidden in zip(RATES, *rows, strict=True)
    )
    values: dict[str, Any] = {
        "weights": "runs/gs5/best.safetensors",
        "model": "gs5-vit-nano",
        "dataset": "synthetic",
        "split": "test",
        "protocol": "saccade",
        "recordings": 17,
        "classes": CLASSES,
        "results": results,
    }
    return Evaluation(**(values | changes))


def labels(boxes: Sequence[Sequence[float]], classes: Sequence[int], *, t: int = 0, **columns: Any) -> Labels:
    count = len(boxes)
    rows = np.array(boxes, np.float32).reshape(count, 4)
    return Labels(np.full(count, t, np.int64), rows, np.array(classes, np.int64), np.full(count, -1, np.int64), **columns)


def detections(boxes: Sequence[Sequence[float]], classes: Sequence[int], given: Sequence[float], *, t: int = 0) -> Detections:
    rows = np.array(boxes, np.float32).reshape(len(boxes), 4)
    return Detections(rows, np.array(given, np.float32), np.array(classes, np.int64), t)


def answer(truth: Labels, guess: Detections, *, recording: str = "a", t: int = 0) -> Answer:
    return Answer(recording, t, truth, guess)
