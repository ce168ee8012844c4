"""The numbers of an evaluation as values: one `Result` per condition, all of them an `Evaluation`, kept as JSON."""

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from saccade.evaluation.average_precision import NAN, Scores
from saccade.evaluation.condition import Condition
from saccade.events.files import check_readable, replacing
from saccade.types import InputError

FORMAT = "saccade evaluation 1"
NOT_A_NUMBER = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no words for them, so they are texts


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
    training_rate_hz: float = 20.0  # one training window after the other: what drop and retention compare with

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
        return ", ".join([self.common.window, self.common.stepping, *(f"{name} {value:g}" for name, value in extras.items() if value)])

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
    def retention(self) -> float:
        """Percent of the training rate's mAP that is left at the highest rate; NaN where there is no higher one, or nothing to lose."""
        if self.trained is None or self.fastest.condition.rate_hz <= self.common.rate_hz or not self.trained.scores.mAP:
            return math.nan
        return 100 * self.fastest.scores.mAP / self.trained.scores.mAP


def to_json(evaluation: Evaluation) -> str:
    """JSON that every parser reads: NaN and infinity as texts, None as null."""
    return json.dumps({"format": FORMAT, **_plain(evaluation)}, indent=1, allow_nan=False)


def from_json(text: str, where: str = "evaluation") -> Evaluation:
    """What `to_json` wrote; WHERE is named in errors."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); expected a file that `saccade evaluate` wrote") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise InputError(f"{where}: not of the format {FORMAT!r}; expected a file that `saccade evaluate` wrote; run it again")
    return typing.cast(Evaluation, _value(Evaluation, content, where))


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text(to_json(evaluation), encoding="utf-8")


def read_evaluation(path: Path) -> Evaluation:
    check_readable(path)
    return from_json(path.read_text(encoding="utf-8", errors="replace"), str(path))


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, floats that JSON can't write as texts."""
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _value(kind: Any, value: Any, where: str) -> Any:
    """A value of KIND out of JSON, every name and type of it checked."""
    if is_dataclass(kind):
        return _record(kind, value, where)
    if isinstance(kind, types.UnionType):  # X | None is all that the values above use
        return None if value is None else _value(get_args(kind)[0], value, where)
    origin = get_origin(kind)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(get_args(kind)[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _value(get_args(kind)[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is Literal and value in get_args(kind):
        return value
    if kind is float and isinstance(value, str) and value in NOT_A_NUMBER:
        return NOT_A_NUMBER[value]
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind in (int, str) and type(value) is kind:
        return value
    expected = getattr(kind, "__name__", str(kind)) if origin is None else str(kind)
    raise InputError(f"{where}: {value!r:.80}; expected {expected}; was the file changed by hand?")


def _record(kind: Any, value: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {value!r:.80}; expected {', '.join(hints)}")
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    wrong = sorted((set(value) - set(hints)) | (required - set(value)))
    if wrong:
        raise InputError(f"{where}: {', '.join(wrong)} unknown or missing; written by another version of saccade? Evaluate again")
    values = {name: _value(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
