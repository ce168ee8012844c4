"""Average precision: ours against pycocotools and faster-coco-eval, as ratios in one run: `python -m benchmarks.average_precision`.

All are given the same labels and detections as arrays and bring them into their own form. CPU seconds, best of rounds in turn.
"""

import contextlib
import io
from functools import partial
from typing import Any

import numpy as np

from benchmarks.histogram import best
from saccade.evaluation.result import Answer
from saccade.evaluation.score.average_precision import average_precision, parts_by_still, score
from saccade.evaluation.score.bootstrap import draws_of
from saccade.evaluation.score.coco import flatten
from saccade.evaluation.score.protocol import PROTOCOLS
from saccade.types import Detections, Labels

CLASSES = ("car", "pedestrian", "two-wheeler")
ROUNDS = 3


def made(frames: int, most: int) -> tuple[list[Labels], list[Detections]]:
    """Up to eight labels per frame, a detection near each of them, and MOST others with low scores, as a threshold of 0.001 leaves them."""
    random = np.random.default_rng(0)
    labels, detections = [], []
    for frame in range(frames):
        count = int(random.integers(0, 9))
        corners = random.uniform(0, 250, (count + most, 2))
        boxes = np.concatenate([corners, corners + random.uniform(8, 100, (count + most, 2))], 1).astype(np.float32)
        kinds = random.integers(0, len(CLASSES), count + most)
        still_us = random.integers(0, 3_000_000, count)
        labels.append(Labels(np.full(count, frame), boxes[:count], kinds[:count], np.full(count, -1), still_us))
        scores = np.concatenate([random.beta(3, 2, count), random.beta(1, 20, most)]).astype(np.float32)
        moved = boxes + np.concatenate([random.uniform(-4, 4, (count, 4)), np.zeros((most, 4))]).astype(np.float32)
        detections.append(Detections(moved, scores, kinds, frame)[np.argsort(-scores)])
    return labels, detections


def pycocotools(labels: list[Labels], detections: list[Detections]) -> float:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    return by_library(COCO, COCOeval, labels, detections)


def faster_coco_eval(labels: list[Labels], detections: list[Detections]) -> float:
    from faster_coco_eval import COCO, COCOeval_faster

    return by_library(COCO, COCOeval_faster, labels, detections)


def by_library(coco: Any, evaluate: Any, labels: list[Labels], detections: list[Detections]) -> float:
    rows: dict[str, list[dict]] = {"labels": [], "detections": []}
    for kind, frames in (("labels", labels), ("detections", detections)):
        for number, frame in enumerate(frames):
            corners = frame.boxes.astype(np.float64)
            corners[:, 2:] -= corners[:, :2]
            scores = frame.scores.tolist() if isinstance(frame, Detections) else [1.0] * len(frame)
            for box, index, certainty in zip(corners.tolist(), frame.classes.tolist(), scores, strict=True):
                row = {"image_id": number + 1, "category_id": index + 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
                rows[kind].append({**row, "id": len(rows[kind]) + 1, "score": certainty})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco()
        truth.dataset = {
            "info": {},
            "images": [{"id": number + 1} for number in range(len(labels))],
            "categories": [{"id": number + 1} for number in range(len(CLASSES))],
            "annotations": rows["labels"],
        }
        truth.createIndex()
        evaluation = evaluate(truth, truth.loadRes(rows["detections"]), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return 100 * float(evaluation.stats[0])


def report(frames: int, most: int) -> None:
    labels, detections = made(frames, most)
    answers = [Answer(f"made {40 * frame // frames}", frame, *pair) for frame, pair in enumerate(zip(labels, detections, strict=True))]
    ours, theirs = average_precision(labels, detections, CLASSES).mAP, pycocotools(labels, detections)
    assert abs(ours - theirs) < 1e-9, f"{ours} against {theirs}"
    times = best(
        {
            "pycocotools": partial(pycocotools, labels, detections),
            "faster-coco-eval": partial(faster_coco_eval, labels, detections),
            "ours, compiled": partial(average_precision, labels, detections, CLASSES),
            "ours, compiled, under a protocol": partial(score, answers, CLASSES, PROTOCOLS["saccade"]),
            "six parts by standing still": lambda: parts_by_still(flatten(answers, len(CLASSES))),
            "1,000 draws of 40 recordings": lambda: draws_of(flatten(answers, len(CLASSES))),
        },
        ROUNDS,
    )
    print(f"\n### {frames} frames, {sum(map(len, labels))} labels, {sum(map(len, detections))} detections, mAP {ours:.1f}\n")
    print("| | ms | pycocotools / this |\n|---|--:|--:|")
    for name, spent in times.items():
        print(f"| {name} | {1000 * spent:.1f} | {times['pycocotools'] / spent:.1f} |")


def main() -> None:
    for frames, most in ((1000, 10), (500, 100)):
        report(frames, most)


if __name__ == "__main__":
    main()
