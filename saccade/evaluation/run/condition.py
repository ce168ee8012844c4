"""CONDITION: at which rate a detector is evaluated, on which windows, and how its memory steps; one row or cell of a table of scores."""

from dataclasses import dataclass
from typing import Literal, get_args

from saccade.types import Counts, InputError, Stepping

RATES_HZ = (20.0, 40.0, 80.0, 100.0, 200.0)  # at which a detector is scored, if nobody asks for others
EvaluationWindow = Literal["sliding", "disjoint", "shrunk"]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Everything that decides the detections besides weights and recordings."""

    rate_hz: float = 20.0
    window: EvaluationWindow = "sliding"  # shrunk: as published, a window of 1 / rate per training window; other events are never seen
    stepping: Stepping = "direct"  # interleaved: each frame continues from the state written nearest to one training window before
    counts: Counts = "plain"  # held: what a window shorter than in training holds is taken to have gone on for so long
    min_rate_hz: float = 0.0  # lowest of an adaptive rate that follows the activity up to rate_hz, as `Stream` does; 0 = constant
    jitter: float = 0.0  # each step is up to this fraction longer or shorter; disjoint windows follow it, others keep their length
    drop: float = 0.0  # share of the windows that are lost; dt is the true time since the last one that wasn't
    reset_every: int = 0  # reset the memory after so many frames, as the published evaluation does after 21 or 10; 0 = never
    seed: int = 0  # random seed for jitter and drop

    def __post_init__(self) -> None:
        if not 1 <= self.rate_hz <= 1000:
            raise InputError(f"condition: rate_hz={self.rate_hz!r} must be from 1 to 1000 frames per second")
        if self.window not in get_args(EvaluationWindow) or self.stepping not in get_args(Stepping):
            raise InputError(
                f"condition: window={self.window!r} must be sliding, disjoint or shrunk, stepping={self.stepping!r} direct or interleaved"
            )
        if self.counts not in get_args(Counts):
            raise InputError(f"condition: counts={self.counts!r} must be plain or held")
        if not (0 <= self.jitter < 1 and 0 <= self.drop < 1):
            raise InputError(f"condition: jitter={self.jitter!r} and drop={self.drop!r} must be at least 0 and below 1")
        if self.min_rate_hz and not 1 <= self.min_rate_hz <= 1000:
            raise InputError(
                f"condition: min_rate_hz={self.min_rate_hz!r} must be from 1 to 1000 frames per second, or 0 for a constant rate"
            )
        if self.min_rate_hz and (self.jitter or self.drop or self.window == "shrunk"):
            raise InputError("condition: an adaptive rate (min_rate_hz) has no jitter, no drop and no shrunk windows; leave them out")
        if self.reset_every < 0 or self.seed < 0:
            raise InputError(f"condition: reset_every={self.reset_every}, seed={self.seed} must be 0 or more")

    @property
    def name(self) -> str:
        """For tables and file names, e.g. sliding-direct-200Hz-drop0.2, disjoint-direct-200Hz-held."""
        extras = (
            ("from", self.min_rate_hz),
            ("jitter", self.jitter),
            ("drop", self.drop),
            ("reset", self.reset_every),
            ("seed", self.seed),
        )
        counts = [] if self.counts == "plain" else [self.counts]
        said = (f"{name}{value:g}" for name, value in extras if value)
        return "-".join([self.window, self.stepping, f"{self.rate_hz:g}Hz", *counts, *said])
