"""The numbers of an evaluation as values: one `Result` per condition, all of them an `Evaluation`, kept as JSON."""

from dataclasses import dataclass, field

from saccade.evaluation.average_precision import Scores
from saccade.evaluation.condition import Condition


@dataclass(frozen=True)
class Cost:
    """What it took, in all processes together."""

    frames: int  # that went through the network
    seconds: float  # of computing: frames, network, boxes
    recorded_s: float  # length of the recordings
    step_ms: float | None = None  # one step alone, batch 1: what the latency-aware score supposes

    @property
    def frames_per_s(self) -> float:
        return self.frames / self.seconds if self.seconds else float("nan")

    @property
    def times_real_time(self) -> float:
        return self.recorded_s / self.seconds if self.seconds else float("nan")


@dataclass(frozen=True)
class Part:
    """The labels whose property lies in [low, high), scored alone; all other labels are ignored, not missed."""

    low: float
    high: float
    ap: float  # COCO mAP in percent
    recall: float  # in percent, at an overlap of one half
    labels: int


@dataclass(frozen=True)
class Result:
    condition: Condition
    scores: Scores
    cost: Cost
    streaming: Scores | None = None  # against what was ready by then; None = no time per step was given or measured
    age_ms: float = 0.0  # mean time from the end of the scored frame to the label
    by_still_s: tuple[Part, ...] = ()  # by the time since the object last made events
    by_speed_px_s: tuple[Part, ...] = ()  # where the labels know it
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)  # class -> precision at recall 0, 0.01 ... 1, overlap one half


@dataclass(frozen=True)
class Evaluation:
    weights: str
    model: str  # name of the detector's config
    dataset: str
    split: str
    protocol: str
    recordings: int
    classes: tuple[str, ...]
    results: tuple[Result, ...]

    def at(self, condition: Condition) -> Result | None:
        return next((result for result in self.results if result.condition == condition), None)
