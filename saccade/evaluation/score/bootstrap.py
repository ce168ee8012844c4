"""ANSWERS -> DRAWS: the scores again and again, of as many recordings drawn with replacement. Their spread is the 95 % interval.

Frames of a recording show the same objects, so recordings are drawn, not frames. The draws depend on the number of recordings alone: all
conditions, and all weights scored on the same recordings, meet the same ones, and differences are paired.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int32

from saccade.evaluation.interval import Drawn
from saccade.evaluation.score.average_precision import STILL_US
from saccade.evaluation.score.coco import OVERLAPS, FlatAnswers, findings_of, precision_by_weight

DRAWS, SEED = 1000, 0
DrawWeights = Int32[np.ndarray, "recordings draws"]


def weights_of(recordings: int, draws: int = DRAWS, seed: int = SEED) -> DrawWeights:
    """How often each recording is in each draw."""
    chosen = np.random.default_rng(seed).multinomial(recordings, np.full(recordings, 1 / recordings), draws)
    return np.ascontiguousarray(chosen.T, np.int32)


def draws_of(answers: FlatAnswers, weights: DrawWeights | None = None) -> dict[str, Drawn]:
    """mAP, ap50 and recall_still in percent, as in `Metrics`, of every draw; without those whose labels are all of one recording.

    WEIGHTS: how often each recording is in each draw; None = as `weights_of` draws them.
    """
    counted = ~answers.ignored
    owners = answers.frame_recordings[answers.label_groups // answers.classes]
    hidden = counted & (answers.still_us > STILL_US)
    if len(np.unique(owners[counted])) < 2:
        return {}
    weights = weights_of(answers.recordings) if weights is None else weights
    findings = findings_of(answers, counted, ~answers.uncertain)
    precisions = np.full((len(OVERLAPS), answers.classes, weights.shape[1]), np.nan)
    for level, index, best in precision_by_weight(answers, counted, findings, weights):
        precisions[level, index] = best.mean(axis=0)
    found = {"mAP": _percent(precisions.reshape(-1, weights.shape[1])), "ap50": _percent(precisions[0])}
    if len(np.unique(owners[hidden])) > 1:
        found["recall_still"] = _share(findings.taken[0], hidden, owners, weights)
    return found


def _percent(values: Float64[np.ndarray, "n draws"]) -> Drawn:
    """Mean of those that aren't NaN, draw by draw."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return 100 * np.where(known, values, 0).sum(axis=0) / known.sum(axis=0)


def _share(hit: Bool[np.ndarray, "labels"], which: Bool[np.ndarray, "labels"], owners: np.ndarray, weights: DrawWeights) -> Drawn:
    hits, every = (np.bincount(owners[mask], minlength=len(weights)) @ weights for mask in (hit & which, which))
    with np.errstate(invalid="ignore"):
        return 100 * hits / every
