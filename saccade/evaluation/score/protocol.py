"""PROTOCOL: what counts as right and wrong, by name: `prophesee`, the field's, and `saccade`, ours."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from saccade.datasets import rules
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import LabelRules
from saccade.evaluation.result import Answer
from saccade.types import Boxes, Detections, InputError, Labels

if TYPE_CHECKING:
    from saccade.detection.decode import Decoding


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How detections are decoded for scoring, and which instants, labels and predictions count.

    Both protocols measure COCO's average precision and the same sizes of labels; they differ in what a wrong box costs. Which instants
    are labelled at all is the data set's: the evaluation rules of Gen1, 1 Mpx and eTraM leave out the first half second already when
    labels are read, so under both protocols it doesn't count.

    prophesee: as the field publishes. Labels and predictions below the least size are dropped; so is every frame in which no label is
    left, with all that was wrongly found there, and, where labels were read by other rules, the first half second. Boxes are ranked by
    the probability of the class alone.

    saccade: every instant that the data set's rules leave counts, with objects or without, and boxes are ranked by the score that the
    threshold and the NMS use. No prediction is dropped. A label below the least size is ignored, as is every other object that the rules
    left out (`Answer.ignored`): whoever finds it is neither right nor wrong. Where those labels aren't known (`Answer.ignored` is None and
    the data set has a least size), a prediction below that size which finds no label can't be judged, and is ignored, as COCO does
    outside a range of areas; one that finds a label is right at any size.
    """

    name: str
    ranking: Literal["product", "class"] = "product"  # objectness x class, or the class alone
    threshold: float = 0.001  # of objectness x class, under either ranking
    nms_iou: float = 0.45
    maximum: int = 300  # detections of a frame that are kept; COCO counts 100 per class
    least_side: float = 0.0  # pixels of the frames, as the boxes of answers are
    least_diagonal: float = 0.0
    small: Literal["ignored", "dropped"] = "ignored"  # predictions and labels below that size
    after_us: int | None = None  # instants at or before this don't count
    empty_frames: bool = True  # whether frames in which no label is left count

    def __post_init__(self) -> None:
        if self.ranking not in ("product", "class") or self.small not in ("ignored", "dropped"):
            raise InputError(
                f"protocol: ranking={self.ranking!r} must be product or class, small={self.small!r} must be ignored or dropped"
            )
        if not (0 <= self.threshold <= 1 and 0 <= self.nms_iou <= 1):
            raise InputError(f"protocol: threshold={self.threshold} and nms_iou={self.nms_iou} must be from 0 to 1")
        if self.maximum < 1 or not (self.least_side >= 0 and self.least_diagonal >= 0):
            raise InputError(
                f"protocol: maximum={self.maximum} must be at least 1, least_side={self.least_side} and "
                f"least_diagonal={self.least_diagonal} 0 or more"
            )

    @property
    def decoding(self) -> "Decoding":
        """How predictions become the boxes that are scored: every class for itself."""
        from saccade.detection.decode import Decoding  # imports torch, which a table doesn't need

        return Decoding(threshold=self.threshold, nms_iou=self.nms_iou, across_iou=1.0, maximum=self.maximum, ranking=self.ranking)

    def large(self, boxes: Boxes, rounded: bool = False) -> Bool[np.ndarray, "n"]:
        """Which boxes aren't below the least size.

        The published filter measures predictions as here, in float32 from float32 corners: there is nothing to allow for. Of labels it
        has the sides as given, of which the ROUNDED corners here hold all but half a last digit each; a label of the least side stays.
        """
        sides = boxes[:, 2:] - boxes[:, :2]
        if rounded:
            last_digits = np.spacing(np.abs(boxes)).astype(np.float64)
            sides = boxes[:, 2:].astype(np.float64) - boxes[:, :2] + (last_digits[:, 2:] + last_digits[:, :2]) / 2
        return (sides >= self.least_side).all(axis=1) & ((sides**2).sum(axis=1) >= self.least_diagonal**2)


# Without the sizes, which depend on the data set: `protocol_of` fills them in.
PROTOCOLS = MappingProxyType(
    {
        "saccade": Protocol(name="saccade"),
        # Its boxes are cut to 100 per class by the score of the class, so the better product may not throw them out before.
        "prophesee": Protocol(name="prophesee", ranking="class", maximum=1000, small="dropped", empty_frames=False),
    }
)

# The evaluation rules of data sets that have such, and the width of the sensor to whose pixels their sizes refer.
_SIZES: dict[str, tuple[LabelRules, int]] = {
    "gen1": (rules.GEN1_EVALUATION, 304),
    "1mpx": (rules.ONE_MPX_EVALUATION, 1280),
    "etram": (rules.ETRAM_EVALUATION, 1280),
}


def protocol_of(name: str, dataset: Dataset) -> Protocol:
    """The protocol with the sizes of the data set, in pixels of its frames: half of them where the resolution is halved.

    DSEC, synthetic recordings and folders of one's own have no least size and no skipped time under either protocol.
    """
    if name not in PROTOCOLS:
        raise InputError(f"protocol: unknown name {name!r}; expected {' or '.join(PROTOCOLS)}")
    protocol = PROTOCOLS[name]
    kind = dataset.name
    if kind == "rvt":  # the tree of either data set; its classes tell
        kind = "gen1" if dataset.classes == rules.GEN1_EVALUATION.classes else "1mpx"
    if kind not in _SIZES or not dataset.recordings:
        return protocol
    used, sensor_width = _SIZES[kind]
    scale = dataset.recordings[0].width / sensor_width
    after_us = used.after_us if protocol.small == "dropped" else None
    return replace(protocol, least_side=used.least_side * scale, least_diagonal=used.least_diagonal * scale, after_us=after_us)


class Judged(NamedTuple):
    """The part of an answer that counts under a protocol."""

    labels: Labels  # to be found
    ignored: Labels  # what finds one of these is neither right nor wrong
    detections: Detections
    uncertain: Bool[np.ndarray, "n"]  # detections that aren't wrong if they find nothing


def judge(answer: Answer, protocol: Protocol | None) -> Judged | None:
    """What of an answer counts; None = this instant doesn't. Without a protocol all of it does."""
    if protocol is None:
        return Judged(answer.labels, answer.ignored or Labels.empty(), answer.detections, np.zeros(len(answer.detections), np.bool_))
    if protocol.after_us is not None and answer.instant_us <= protocol.after_us:
        return None
    large, large_guess = protocol.large(answer.labels.boxes, rounded=True), protocol.large(answer.detections.boxes)
    labels = answer.labels[large]
    if not protocol.empty_frames and not len(labels):
        return None
    if protocol.small == "dropped":
        kept = answer.detections[large_guess]
        return Judged(labels, Labels.empty(), kept, np.zeros(len(kept), np.bool_))
    uncertain = ~large_guess if answer.ignored is None else np.zeros(len(large_guess), np.bool_)
    small = answer.labels[~large]
    return Judged(labels, _joined(small, answer.ignored), answer.detections, uncertain)


def _joined(first: Labels, second: Labels | None) -> Labels:
    """Boxes and classes of both; nothing else of ignored labels is asked for."""
    if second is None or not len(second):
        return first
    t, tracks = np.zeros(len(first) + len(second), np.int64), np.full(len(first) + len(second), -1, np.int64)
    return Labels(t, np.concatenate([first.boxes, second.boxes]), np.concatenate([first.classes, second.classes]), tracks)
