"""DATASET -> CLIPS: lanes, each an endless row of clips for one slot of the batch. Clip n of lane k is a pure function of the seed.

Lanes keep no position: the number of the step says where every lane is, so resuming is starting at a step, and processes share the lanes
by number. An ordered lane plays recordings through (the state is carried, gradients end with the clip); a random
lane jumps to a labelled instant with every clip (`is_first`). No padding frames: the remainder after whole clips, less than a clip, is
left out at the beginning and end of a recording, another part of it every time it is played. Clips of ordered lanes may have no labels.
"""

import hashlib
import logging
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from saccade.datasets.augment import Augmentation, AugmentSettings, draw
from saccade.datasets.clips import Clip, ClipTimeline, cut, labels_of, seen_since
from saccade.datasets.raw_events import opened
from saccade.datasets.recording import Dataset, Sampling
from saccade.types import InputError

log = logging.getLogger("saccade")

ORDER, PLAY, JUMP, PICTURE = range(4)  # purposes of random numbers, each with a generator of its own
MOST_TRIES = 1000


@dataclass(frozen=True, kw_only=True)
class LaneSettings:
    """How recordings are cut into clips."""

    kind: Literal["mixed", "ordered", "random"] = "mixed"  # ordered lanes play recordings through, random ones jump; mixed: half each
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    rates_hz: tuple[float, ...] = ()  # frame rates to draw from, for each random clip or played recording; empty = the detector's own
    skip: float = 0.0  # share of the frames that are left out at random, which varies dt
    seen_only: bool = True  # whether labels are left out of objects that have stood still since before the memory was reset
    tolerance_us: float = 25_000.0  # labels further than this, or than half a step, from the end of every frame are not used

    def __post_init__(self) -> None:
        if self.kind not in ("mixed", "ordered", "random"):
            raise InputError(f"lanes.kind={self.kind!r}: expected mixed, ordered or random")
        if not 0 <= self.skip < 1:
            raise InputError(f"lanes.skip={self.skip!r} must be at least 0 and below 1: the share of frames left out")
        if not all(1e-6 <= rate_hz <= 1e6 for rate_hz in self.rates_hz) or not 0 <= self.tolerance_us < float("inf"):
            raise InputError(f"lanes.rates_hz={self.rates_hz!r} must be from 1e-6 to 1e6, tolerance_us={self.tolerance_us!r} 0 or more")


@dataclass(frozen=True, eq=False)
class ClipPlace:
    """Where a clip lies: frames first to first + length of the timeline of a recording."""

    recording: int
    timeline: ClipTimeline
    first: int
    begins: int  # the frame at which the memory was reset
    is_first: bool
    augmentation: Augmentation | None  # None = drawn per clip, when its labels are known


class Lanes:
    """`clip(lane, step)` of LANES lanes, those of all processes together; attributes with an underscore are caches."""

    def __init__(self, dataset: Dataset, sampling: Sampling, settings: LaneSettings, *, lanes: int, length: int, seed: int) -> None:
        if not dataset.recordings:
            raise InputError(f"{dataset.name}, {dataset.split}: no recordings; is the folder the right one?")
        if lanes < 1 + (settings.kind == "mixed") or length < 1 or seed < 0:
            raise InputError(
                f"lanes={lanes}, length={length}, seed={seed}: expected at least {1 + (settings.kind == 'mixed')} lanes of "
                f"kind={settings.kind}, at least 1 frame, a seed from 0"
            )
        self.dataset, self.sampling, self.settings = dataset, sampling, settings
        self.lanes, self.length, self.seed = lanes, length, seed
        self.height = max(recording.height for recording in dataset.recordings)
        self.width = max(recording.width for recording in dataset.recordings)
        self._played: dict[int, list[int]] = {}  # ordered lane -> clips before its first, second, ... recording
        self._counts: dict[tuple[int, float], int] = {}
        self._plays: dict[int, ClipPlace] = {}
        self._instants: list[np.ndarray] = []
        if settings.kind != "ordered":
            self._instants = [np.unique(recording.labels.t) for recording in opened(dataset.recordings)]
            self._before = np.cumsum([0, *map(len, self._instants)])
            if not self._before[-1]:
                raise InputError(f"{dataset.name}, {dataset.split}: no labels for random lanes; use kind=ordered or check the filters")

    def clip(self, lane: int, step: int) -> Clip:
        place = self.place(lane, step)
        recording = self.dataset.recordings[place.recording]
        labels = labels_of(recording, place.timeline, place.first, self.length, self.settings.tolerance_us)
        if self.settings.seen_only:
            begins = place.timeline.ends_us[place.timeline.kept[place.begins]]
            labels = seen_since(labels, int(begins) - place.timeline.sampling.window_us)
        augmentation = place.augmentation
        if augmentation is None:
            last = next((found for found in reversed(labels) if found is not None), None)
            boxes = np.zeros((0, 4), np.float32) if last is None else last.boxes
            random = np.random.default_rng([self.seed, PICTURE, lane, step])
            augmentation = draw(random, self.settings.augment, "random", recording.width, recording.height, boxes)
        return cut(recording, place.timeline, place.first, labels, augmentation, place.is_first)

    def place(self, lane: int, step: int) -> ClipPlace:
        """Which frames the clip has, without reading them."""
        if not 0 <= lane < self.lanes or step < 0:
            raise InputError(f"lanes: lane {lane} of {self.lanes}, step {step}: there is no such clip")
        if self.settings.kind == "random" or (self.settings.kind == "mixed" and lane % 2):
            return self._jump(lane, step)
        return self._along(lane // 2 if self.settings.kind == "mixed" else lane, step)

    def fingerprint(self) -> str:
        """Equal if every step gives the same clips; a checkpoint compares it before it is resumed."""
        names = [(recording.name, recording.width, recording.height) for recording in self.dataset.recordings]
        said = repr((self.dataset.name, self.dataset.split, names, self.sampling, self.settings, self.lanes, self.length, self.seed))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def _jump(self, lane: int, step: int) -> ClipPlace:
        """A random lane's clip: up to a labelled instant, all equally likely; instants near a recording's start lie inside the clip."""
        random = np.random.default_rng([self.seed, JUMP, lane, step])
        for _ in range(MOST_TRIES):
            number = int(random.integers(self._before[-1]))
            recording = bisect_right(self._before, number) - 1
            time_us = self._instants[recording][number - self._before[recording]]
            timeline = self._timeline(recording, random)
            if len(timeline) < self.length:
                continue
            ends_us = timeline.ends_us[timeline.kept]
            index = int(np.searchsorted((ends_us[1:] + ends_us[:-1]) / 2, time_us))  # the nearest
            tolerance_us = timeline.tolerance_us(self.settings.tolerance_us)
            if self.dataset.recordings[recording].labels_at(int(ends_us[index]), tolerance_us) is not None:
                first = max(index + 1 - self.length, 0)
                return ClipPlace(recording, timeline, first, first, True, None)
        raise InputError(
            f"{self.dataset.name}, {self.dataset.split}: of {MOST_TRIES} labelled instants none is near a frame of a recording that has "
            f"{self.length} frames; are the labels' times those of the events? Else lower the length or raise tolerance_us"
        )

    def _along(self, lane: int, step: int) -> ClipPlace:
        """An ordered lane's clip. The recordings, shuffled again and again, are one endless list; lane k of n plays entries k, k + n ..."""
        count = self.lanes if self.settings.kind == "ordered" else (self.lanes + 1) // 2
        played = self._played.setdefault(lane, [0])
        empty = 0
        while played[-1] <= step:
            clips = self._clips(lane + count * (len(played) - 1))
            played.append(played[-1] + clips)
            empty = 0 if clips else empty + 1
            if empty > MOST_TRIES + 10 * len(self.dataset.recordings):
                raise InputError(f"{self.dataset.name}, {self.dataset.split}: no recording has {self.length} frames; lower the length")
        turn = bisect_right(played, step) - 1
        play = self._play(lane + count * turn)
        clip = step - played[turn]
        return replace(play, first=play.first + clip * self.length, is_first=clip == 0)

    def _clips(self, number: int) -> int:
        """How many clips entry NUMBER of that list gives."""
        if self.settings.skip:
            return len(self._play(number).timeline) // self.length
        recording, random = self._draw_play(number)
        rate_hz = self._rate(random)
        if (recording, rate_hz) not in self._counts:
            frames = len(self.dataset.recordings[recording].ends_us(replace(self.sampling, rate_hz=rate_hz)))
            self._counts[recording, rate_hz] = frames // self.length
            if frames < self.length:
                name = self.dataset.recordings[recording].name
                log.warning("%s: %d frames at %g Hz are less than a clip of %d; ordered lanes skip it", name, frames, rate_hz, self.length)
        return self._counts[recording, rate_hz]

    def _draw_play(self, number: int) -> tuple[int, np.random.Generator]:
        """Index of the recording that is entry NUMBER, and its random generator."""
        epoch, position = divmod(number, len(self.dataset.recordings))
        return int(_order(self.seed, epoch, len(self.dataset.recordings))[position]), np.random.default_rng([self.seed, PLAY, number])

    def _play(self, number: int) -> ClipPlace:
        """First clip of entry NUMBER, with the augmentation that holds for all of its clips."""
        if number in self._plays:
            return self._plays[number]
        index, random = self._draw_play(number)
        recording = self.dataset.recordings[index]
        timeline = self._timeline(index, random)
        offset = int(random.integers(len(timeline) % self.length + 1))
        nothing = np.zeros((0, 4), np.float32)
        picture = draw(random, self.settings.augment, "ordered", recording.width, recording.height, nothing)
        if len(self._plays) >= 2 * self.lanes:  # the recording that each lane plays, and the one it comes from
            del self._plays[next(iter(self._plays))]
        self._plays[number] = ClipPlace(index, timeline, offset, offset, True, picture)
        return self._plays[number]

    def _rate(self, random: np.random.Generator) -> float:
        return float(random.choice(self.settings.rates_hz)) if self.settings.rates_hz else self.sampling.rate_hz

    def _timeline(self, recording: int, random: np.random.Generator) -> ClipTimeline:
        sampling = replace(self.sampling, rate_hz=self._rate(random))
        ends_us = self.dataset.recordings[recording].ends_us(sampling)
        kept = np.arange(len(ends_us))
        if self.settings.skip:
            kept = kept[random.random(len(kept)) >= self.settings.skip]
        return ClipTimeline(sampling, ends_us, kept)


@lru_cache(maxsize=16)
def _order(seed: int, epoch: int, recordings: int) -> np.ndarray:
    return np.random.default_rng([seed, ORDER, epoch]).permutation(recordings)
