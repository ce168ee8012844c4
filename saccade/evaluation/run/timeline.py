"""CONDITION + RECORDING -> WINDOWS that are run, and which of them answers which labelled instant."""

import hashlib
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64

from saccade.config import DetectorConfig
from saccade.datasets.recording import Clock, FrameArray, Instants, LabelledRecording, Sampling, WindowEnds
from saccade.datasets.rules import thinned
from saccade.evaluation.run.condition import Condition
from saccade.representation.histogram import held
from saccade.stream.adaptive import Adaptive, pace_of, steps_due
from saccade.types import Counts

OLDEST_US = 5_000  # a frame that answers an instant of a regular rate ended at most so long before: as many phases are run as that takes
SLACK_US = 1_000  # and at most so long after it: the clocks of labels aren't better than that


@dataclass(frozen=True, eq=False)
class Phase:
    """One stream of windows, with a memory of its own."""

    starts_us: WindowEnds
    ends_us: WindowEnds
    sampling: Sampling
    regular: bool  # consecutive windows of the sampling's own grid

    counts: Counts = "plain"

    def frames(self, recording: LabelledRecording, which: slice) -> FrameArray:
        starts_us, ends_us = self.starts_us[which], self.ends_us[which]
        clip = recording.frames(ends_us, self.sampling) if self.regular else recording.windows(starts_us, ends_us, self.sampling)
        if self.counts == "plain" or not len(clip):
            return clip
        window_us, most = self.sampling.window_us, self.sampling.clip
        lengths_us = (ends_us - starts_us).tolist()
        return np.stack([held(frame, length_us, window_us, most) for frame, length_us in zip(clip, lengths_us, strict=True)])


@dataclass(frozen=True, eq=False)
class Timeline:
    phases: tuple[Phase, ...]
    instants_us: Instants  # that are scored
    phase: Int64[np.ndarray, "m"]  # that answers the instant
    frame: Int64[np.ndarray, "m"]  # of that phase; -1 = none had ended by then

    def wanted(self, phase: int) -> Bool[np.ndarray, "n"]:
        """Which frames of a phase answer an instant: only those need boxes."""
        wanted = np.zeros(len(self.phases[phase].ends_us), np.bool_)
        wanted[self.frame[(self.phase == phase) & (self.frame >= 0)]] = True
        return wanted


def timeline(
    recording: LabelledRecording, condition: Condition, config: DetectorConfig, label_rate_hz: float | None = None, nearest: bool = False
) -> Timeline:
    """What is run of a recording, and the newest frame that had ended by each instant.

    A regular rate is run in several phases, shifted in time, if its frames would else be older than OLDEST_US: a slow rate isn't scored
    for the age of its answers. Irregular and adaptive ones have one phase, and their age counts. NEAREST: one phase, the frame nearest
    to each instant, later ones too; for training, and for stored frames.
    """
    trained_us = recording.ends_us(Sampling.of(config))
    instants_us = scored_instants(recording, label_rate_hz)
    instants_us = instants_us[instants_us >= trained_us[0] - SLACK_US] if len(trained_us) else instants_us[:0]  # the same at every rate
    first = _regular(recording, condition, config, trained_us)
    phases: tuple[Phase, ...] = (first,)
    slack_us = 0
    if condition.min_rate_hz:
        phases = (_adaptive(first, condition, recording),)
    elif condition.jitter or condition.drop:
        phases = (_irregular(first, condition, config, recording.name),)
    elif len(first.ends_us) > 1:
        step_us = float(first.ends_us[-1] - first.ends_us[0]) / (len(first.ends_us) - 1)
        slack_us = int(min(np.inf if nearest else SLACK_US, (step_us - 1) // 2))
        count = 1 if nearest else _phases(instants_us - first.ends_us[0], step_us, slack_us)
        phases = (first, *(_shifted(first, ceil(step_us * number / count)) for number in range(1, count)))
    found = np.stack([np.searchsorted(phase.ends_us, instants_us + slack_us, "right") - 1 for phase in phases])
    oldest = np.iinfo(np.int64).min
    ended_us = [
        np.where(row >= 0, phase.ends_us[row], oldest) if len(phase.ends_us) else row for row, phase in zip(found, phases, strict=True)
    ]
    chosen = np.argmax(np.stack(ended_us), axis=0)
    return Timeline(phases, instants_us, chosen, found[chosen, np.arange(len(instants_us))])


def scored_instants(recording: LabelledRecording, label_rate_hz: float | None) -> Instants:
    """All that are labelled; of denser ones those on a grid of that rate on the labels' own clock."""
    instants_us = recording.instants_us
    if label_rate_hz is None or len(instants_us) < 2 or float(np.median(np.diff(instants_us))) * label_rate_hz > 0.9e6:
        return instants_us
    return thinned(instants_us, Clock.of(instants_us), label_rate_hz)


def _regular(recording: LabelledRecording, condition: Condition, config: DetectorConfig, trained_us: WindowEnds) -> Phase:
    trained = Sampling.of(config)
    if condition.window == "shrunk":
        length_us = round(1e6 / condition.rate_hz)
        return Phase(trained_us - length_us, trained_us, trained, length_us == config.window_us, condition.counts)
    as_trained = condition.rate_hz == trained.rate_hz  # there both kinds are the same windows
    kind: Literal["sliding", "disjoint"] = "sliding" if as_trained or condition.window == "sliding" else "disjoint"
    sampling = replace(trained, rate_hz=condition.rate_hz, kind=kind)
    ends_us = recording.ends_us(sampling)
    if kind == "sliding" or not len(ends_us):
        return Phase(ends_us - config.window_us, ends_us, sampling, True, condition.counts)
    return Phase(_previous(ends_us, round(float(sampling.step_us))), ends_us, sampling, True, condition.counts)


def _previous(ends_us: WindowEnds, step_us: int) -> WindowEnds:
    return np.concatenate((ends_us[:1] - step_us, ends_us[:-1]))


def _irregular(phase: Phase, condition: Condition, config: DetectorConfig, name: str) -> Phase:
    """Random, but the same for a recording of this name whatever else is run, and in which process."""
    digest = hashlib.sha256(name.encode()).digest()
    random = np.random.default_rng([condition.seed, int.from_bytes(digest[:8], "big")])
    starts_us, ends_us = phase.starts_us, phase.ends_us
    if condition.jitter and len(ends_us) > 1:
        step_us = (ends_us[-1] - ends_us[0]) / (len(ends_us) - 1)
        longer = 1 + condition.jitter * random.uniform(-1, 1, len(ends_us))
        lengths_us = starts_us - ends_us
        ends_us = ends_us[0] + np.cumsum(np.maximum(np.rint(step_us * longer), 1)).astype(np.int64) - round(step_us)
        starts_us = _previous(ends_us, round(step_us)) if condition.window == "disjoint" else ends_us + lengths_us
    kept = random.random(len(ends_us)) >= condition.drop
    return replace(phase, starts_us=starts_us[kept], ends_us=ends_us[kept], regular=False)


def _adaptive(phase: Phase, condition: Condition, recording: LabelledRecording) -> Phase:
    """The ends at which a stream whose rate follows the activity would step."""
    if not len(phase.ends_us):
        return phase
    began_us = int(phase.ends_us[0]) - round(float(phase.sampling.step_us))
    pace = pace_of(Adaptive(min_rate_hz=condition.min_rate_hz), condition.rate_hz)
    due = steps_due(pace, phase.ends_us, *recording.event_counts(began_us, phase.ends_us))
    ends_us = phase.ends_us[due]
    starts_us = phase.starts_us[due] if condition.window == "sliding" else np.concatenate((phase.starts_us[:1], ends_us[:-1]))
    return replace(phase, starts_us=starts_us, ends_us=ends_us, regular=False)


def _shifted(phase: Phase, by_us: int) -> Phase:
    return replace(phase, starts_us=phase.starts_us - by_us, ends_us=phase.ends_us - by_us, regular=False)


def _phases(since_us: Instants, step_us: float, slack_us: int) -> int:
    """The least number of equally shifted grids with which no answer is older than OLDEST_US; that of all instants, edges aside."""
    most = ceil(step_us / OLDEST_US)
    for count in range(1, most):
        if not len(since_us) or ((since_us + slack_us) % (step_us / count)).max() - slack_us <= OLDEST_US:
            return count
    return max(most, 1)
