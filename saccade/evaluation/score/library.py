"""COLUMNS -> PRECISION AND RECALL by faster-coco-eval: the slow, well-kept twin of `tally`."""

from typing import Any

import numpy as np
from jaxtyping import Bool

from saccade.evaluation.score.columns import Columns
from saccade.evaluation.score.tally import Tally

COUNTED, IGNORED = 1.0, 3.0
RANGE = [0.0, 2.0]


def tally_by_library(columns: Columns, counted: Bool[np.ndarray, "labels"], judged: Bool[np.ndarray, "detections"]) -> Tally:
    """The library ignores by the stated area alone, of labels and of detections that find none; so the areas state what to ignore."""
    from faster_coco_eval import COCO, COCOeval_faster  # type: ignore[import-untyped]

    truth = COCO(
        {
            "images": [{"id": frame + 1} for frame in range(columns.frames)],
            "categories": [{"id": index + 1, "name": str(index)} for index in range(columns.classes)],
            "annotations": _rows(columns.labels, columns.label_groups, columns.classes, counted),
        }
    )
    guesses = _rows(columns.boxes, columns.groups, columns.classes, judged)
    for row, score in zip(guesses, columns.scores.tolist(), strict=True):
        row["score"] = score
    results = truth.loadRes([dict(row) for row in guesses])
    for row in guesses:  # loading works the areas out from the boxes
        results.anns[row["id"]]["area"] = row["area"]
    evaluation = COCOeval_faster(truth, results, "bbox")
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [RANGE], ["all"]
    evaluation.evaluate()
    evaluation.accumulate()
    precision = np.asarray(evaluation.eval["precision"])[:, :, :, 0, -1]
    recall = np.moveaxis(np.asarray(evaluation.eval["recall"])[:, :, 0, :], -1, 0)
    return Tally(np.where(precision < 0, np.nan, precision), np.where(recall < 0, np.nan, recall))


def _rows(boxes: np.ndarray, groups: np.ndarray, classes: int, counted: np.ndarray) -> list[dict[str, Any]]:
    corners = boxes.astype(np.float64)
    corners[:, 2:] -= corners[:, :2]
    return [
        {
            "id": number + 1,  # 0 would count as not matched
            "image_id": group // classes + 1,
            "category_id": group % classes + 1,
            "bbox": box,
            "area": COUNTED if counts else IGNORED,
            "iscrowd": 0,
        }
        for number, (box, group, counts) in enumerate(zip(corners.tolist(), groups.tolist(), counted.tolist(), strict=True))
    ]
