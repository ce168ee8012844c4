"""The values of an evaluation: `Answer` per labelled instant, `Metrics` of many, a `Result` per condition, all of them an `Evaluation`."""

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from saccade.evaluation.interval import UNKNOWN, Drawn, Interval, interval_of, unpacked
from saccade.evaluation.run.condition import Condition
from saccade.files import NAN, check_readable, from_plain, replacing, to_plain
from saccade.types import Detections, InputError, Labels

FORMAT = "saccade evaluation 1"
SHOWN = 0.05  # mAP below this is 0.0 in every table


@dataclass(frozen=True, eq=False)
class Answer:
    """One scored instant of a recording: what the detector had said by then, beside what was there."""

    recording: str
    instant_us: int
    labels: Labels  # of this instant, maybe none
    detections: Detections  # of the newest frame that ended by then; `time_us` says when
    late: Detections | None = None  # of the newest frame that was ready by then, computing included; None if no latency was requested
    ignored: Labels | None = None  # objects that the data set's rules left out: finding one is neither right nor wrong; None = not known


@dataclass(frozen=True)
class Metrics:
    """In percent; NaN where there is nothing to count."""

    mAP: float  # COCO's: mean over IoU 0.50 to 0.95 and over the classes that have labels
    ap50: float
    ap75: float
    classes: dict[str, float]  # mAP of each
    recall: float  # of all labels: a detection of their class overlaps by at least half
    recall_still: float  # of labels that have been still for more than a quarter of a second
    frames: int
    labels: int
    still: int
    ap_small: float = NAN  # mAP of boxes up to 32 x 32 pixels in area ...
    ap_medium: float = NAN
    ap_large: float = NAN  # ... and from 96 x 96 on
    ar1: float = NAN  # recall, mean over the overlaps and classes, by the best detection of each class and frame ...
    ar10: float = NAN
    ar100: float = NAN  # ... and by the best hundred
    ignored: int = 0  # labels whose finding is neither right nor wrong


@dataclass(frozen=True)
class Cost:
    """Computing, in all processes together."""

    frames: int  # that went through the network
    seconds: float  # of computing: frames, network, boxes
    recorded_s: float  # length of the recordings
    step_ms: float | None = None  # time of one step, batch 1, that the latency-aware score assumes
    steps: int = 0  # that a live stream would make: those of one phase, all chains included

    @property
    def frames_per_s(self) -> float:
        return self.frames / self.seconds if self.seconds else float("nan")

    @property
    def steps_per_s(self) -> float:
        """Of a live stream, per second of recording: the rate, or what an adaptive one comes to."""
        return self.steps / self.recorded_s if self.steps and self.recorded_s else float("nan")

    @property
    def times_real_time(self) -> float:
        """How many live streams at this rate the speed would serve."""
        return self.frames_per_s / self.steps_per_s


@dataclass(frozen=True)
class Part:
    """The labels whose property lies in [low, high), scored alone; all other labels are ignored, not missed."""

    low: float
    high: float
    ap: float  # COCO mAP in percent
    recall: float  # in percent, at an overlap of one half
    labels: int


@dataclass(frozen=True)
class Ghosts:
    """Boxes that stay where their object no longer is; of detections with a score of 0.3 or more. NaN where there is nothing to count."""

    ended: int = 0  # tracks whose last label comes before the last scored instant of their recording
    share: float = NAN  # percent of them that leave a ghost at the next scored instant
    median_s: float = NAN  # how long the ghost lasts, of all of them: 0 if there is none
    p95_s: float = NAN  # 95th percentile
    empty_box_s: float = NAN  # where no object is: seconds of boxes per minute, two boxes at once counted twice


@dataclass(frozen=True)
class Result:
    condition: Condition
    scores: Metrics
    cost: Cost
    streaming: Metrics | None = None  # latency-aware: against what was ready by then; None if no latency was requested
    age_ms: float = 0.0  # mean time from the end of the scored frame to the label
    by_still_s: tuple[Part, ...] = ()  # by the time since the object last made events
    by_speed_px_s: tuple[Part, ...] = ()  # where the labels know it
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)  # class -> precision at recall 0, 0.01 ... 1, overlap one half
    ghosts: Ghosts = Ghosts()
    draws: dict[str, str] = field(default_factory=dict)  # mAP, ap50, recall_still of recordings drawn anew, packed; none of one recording

    def __post_init__(self) -> None:
        for score in self.draws:
            self.drawn(score)

    def drawn(self, score: str) -> Drawn:
        return unpacked(self.draws.get(score, ""))

    def interval(self, score: str) -> Interval:
        """95 %, by bootstrap over recordings; NaN where it isn't known."""
        return interval_of(self.drawn(score))

    def gain(self, other: "Result", score: str = "mAP") -> tuple[float, Interval]:
        """By how much a score is above another condition's, and the paired interval; of weights scored on the same recordings."""
        ours, theirs = self.drawn(score), other.drawn(score)
        between = interval_of(ours - theirs) if len(ours) == len(theirs) else UNKNOWN
        return getattr(self.scores, score) - getattr(other.scores, score), between


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
    training_rate_hz: float = 20.0  # one frame per training window; mean drop and retention compare with it
    names: tuple[str, ...] = ()  # of the recordings; scores of the same ones are paired, draw by draw

    def at(self, condition: Condition) -> Result | None:
        return next((result for result in self.results if result.condition == condition), None)

    @property
    def series(self) -> tuple["Series", ...]:
        """The results by what they have in common, in the order of their first; the rates of each in ascending order."""
        groups: dict[Condition, list[Result]] = {}
        for result in self.results:
            groups.setdefault(replace(result.condition, rate_hz=self.training_rate_hz), []).append(result)
        return tuple(
            Series(common, tuple(sorted(results, key=lambda result: result.condition.rate_hz))) for common, results in groups.items()
        )


@dataclass(frozen=True)
class Series:
    """Results whose conditions differ in their rate alone: a row of the table, a line of the plot."""

    common: Condition  # at the training rate
    results: tuple[Result, ...]  # slowest first

    @property
    def name(self) -> str:
        """For tables and legends, e.g. "sliding, direct, drop 0.2"."""
        extras = {"jitter": self.common.jitter, "drop": self.common.drop, "reset every": self.common.reset_every, "seed": self.common.seed}
        counts = [] if self.common.counts == "plain" else [f"counts {self.common.counts}"]
        counts += [f"adaptive from {self.common.min_rate_hz:g} Hz"] if self.common.min_rate_hz else []
        said = (f"{name} {value:g}" for name, value in extras.items() if value)
        return ", ".join([self.common.window, self.common.stepping, *counts, *said])

    def at(self, rate_hz: float) -> Result | None:
        return next((result for result in self.results if result.condition.rate_hz == rate_hz), None)

    @property
    def trained(self) -> Result | None:
        """At the training rate."""
        return self.at(self.common.rate_hz)

    @property
    def fastest(self) -> Result:
        return self.results[-1]

    @property
    def mean_drop(self) -> float:
        """mAP lost on the average of the rates above the training rate (paper, table 2); NaN without any, or without the training rate."""
        higher = [result.scores.mAP for result in self.results if result.condition.rate_hz > self.common.rate_hz]
        return self.trained.scores.mAP - sum(higher) / len(higher) if self.trained and higher else math.nan

    @property
    def mean_drop_interval(self) -> Interval:
        """95 %, paired; NaN where it isn't known."""
        higher = [result.drawn("mAP") for result in self.results if result.condition.rate_hz > self.common.rate_hz]
        trained = self.trained.drawn("mAP") if self.trained else np.zeros(0)
        if not higher or any(len(drawn) != len(trained) for drawn in higher):
            return UNKNOWN
        return interval_of(trained - np.mean(higher, axis=0))

    @property
    def retention(self) -> float:
        """Percent of the training rate's mAP that is left at the highest rate; NaN where there is no higher one, or nothing to lose."""
        if self.trained is None or self.fastest.condition.rate_hz <= self.common.rate_hz or self.trained.scores.mAP < SHOWN:
            return math.nan
        return 100 * self.fastest.scores.mAP / self.trained.scores.mAP


def to_json(evaluation: Evaluation) -> str:
    """JSON that every parser reads: NaN and infinity as texts, None as null. `intervals` is for other readers; the rest says it all."""
    intervals = to_plain([_intervals(series) for series in evaluation.series])
    return json.dumps({"format": FORMAT, "intervals": intervals, **to_plain(evaluation)}, indent=1, allow_nan=False)


def _intervals(series: "Series") -> dict[str, Any]:
    """95 %, of the scores and of their gains over the training rate."""
    rates = {}
    for result in series.results:
        own = {score: result.interval(score) for score in result.draws}
        if series.trained is not None and result is not series.trained:
            own |= {f"{score} less training rate": result.gain(series.trained, score)[1] for score in result.draws}
        rates[f"{result.condition.rate_hz:g} Hz"] = own
    return {"series": series.name, "mean drop": series.mean_drop_interval, "rates": rates}


def from_json(text: str, where: str = "evaluation") -> Evaluation:
    """What `to_json` wrote; WHERE is named in errors."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); expected a file that `saccade evaluate` wrote") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise InputError(f"{where}: not of the format {FORMAT!r}; expected a file that `saccade evaluate` wrote; run it again")
    content.pop("intervals", None)  # they follow from the draws
    return cast(Evaluation, from_plain(Evaluation, content, where))


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text(to_json(evaluation), encoding="utf-8")


def read_evaluation(path: Path) -> Evaluation:
    check_readable(path)
    return from_json(path.read_text(encoding="utf-8", errors="replace"), str(path))
