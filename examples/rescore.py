"""The mAP of an evaluation once more, by pycocotools, which shares no line with ours:

    saccade evaluate nano streets --rates 20 200 --out scores
    python -m examples.rescore scores

Needs pycocotools. For data sets without a least size of objects (simulated streets and photographs, DSEC, folders of one's own). Objects
that their rules leave out are crowds there: what finds one is neither right nor wrong, but pycocotools measures by how much of the box lies
inside, so such scores may differ in the second digit.
"""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from saccade.evaluation.result import Answer, read_evaluation
from saccade.evaluation.run.store import answers_at
from saccade.evaluation.score.protocol import PROTOCOLS, Protocol, judge
from saccade.types import Boxes, InputError

SIZED = ("gen1", "1mpx", "etram", "rvt")  # data sets whose protocols have a least size


def main(scores: Annotated[Path, tyro.conf.Positional], *, tolerance: float = 0.01) -> None:
    """A line for each condition: ours, pycocotools'.

    Args:
        scores: Folder that `saccade evaluate --out` wrote; those of `--beside` lie in folders of their own inside.
        tolerance: Exit with an error if any two differ by more.
    """
    found = sorted(scores.rglob("evaluation.json"))
    if not found:
        raise InputError(f"{scores}: no evaluation.json in it; make one with `saccade evaluate WEIGHTS DATA --out {scores}`")
    farthest = 0.0
    print("| weights | condition | ours | pycocotools |\n|---|---|--:|--:|")
    for path in found:
        evaluation = read_evaluation(path)
        if evaluation.dataset in SIZED:
            raise InputError(f"{path}: of {evaluation.dataset}, whose protocols have a least size; expected another data set")
        for result in evaluation.results:
            answers = list(answers_at(path.parent, result.condition))
            theirs = by_pycocotools(answers, len(evaluation.classes), PROTOCOLS[evaluation.protocol])
            farthest = max(farthest, abs(theirs - result.scores.mAP))
            print(f"| {evaluation.weights} | {result.condition.name} | {result.scores.mAP:.4f} | {theirs:.4f} |", flush=True)
    if farthest > tolerance:
        raise InputError(f"{scores}: the two differ by {farthest:.4f}, more than {tolerance}")


def by_pycocotools(answers: Sequence[Answer], classes: int, protocol: Protocol) -> float:
    """mAP in percent of all that counts under the protocol."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    frames = [judged for judged in (judge(answer, protocol) for answer in answers) if judged is not None]
    labels, found = [], []
    for image, frame in enumerate(frames, 1):
        for truth, crowd in ((frame.labels, 0), (frame.ignored, 1)):
            for box, kind in zip(_xywh(truth.boxes), truth.classes.tolist(), strict=True):
                row = {"id": len(labels) + 1, "image_id": image, "category_id": kind + 1, "iscrowd": crowd}
                labels.append(row | {"bbox": box, "area": box[2] * box[3]})
        seen = frame.detections
        for box, kind, score in zip(_xywh(seen.boxes), seen.classes.tolist(), seen.scores.tolist(), strict=True):
            found.append({"image_id": image, "category_id": kind + 1, "bbox": box, "score": score})
    if not found:
        return 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        images, kinds = ([{"id": number + 1} for number in range(count)] for count in (len(frames), classes))
        truth.dataset = {"info": {}, "images": images, "categories": kinds, "annotations": labels}
        truth.createIndex()
        judging = COCOeval(truth, truth.loadRes(found), "bbox")
        judging.evaluate()
        judging.accumulate()
        judging.summarize()
    return 100 * float(judging.stats[0])


def _xywh(boxes: Boxes) -> list[list[float]]:
    corners = boxes.astype(np.float64)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], 1).tolist()


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except InputError as error:
        raise SystemExit(f"rescore: {error}") from None
