"""RECORDING -> CLIP: T consecutive frames with the true time between them and their labels."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8

from saccade.datasets.augment import Augmentation, augment_frames, augment_labels
from saccade.datasets.recording import FrameArray, LabelledRecording, Sampling
from saccade.model.stepping import FRESH_DT, elapsed
from saccade.types import InputError, Labels


@dataclass(frozen=True, eq=False)
class Clip:
    """Consecutive frames of one recording; none is padding."""

    frames: UInt8[np.ndarray, "T channels height width"]
    dt: Float32[np.ndarray, "T"]  # time since the previous frame (of the previous clip, too), in windows of the sampling; 1.0 if `is_first`
    ends_us: Int64[np.ndarray, "T"]
    labelled: Bool[np.ndarray, "T"]
    labels: tuple[Labels, ...]  # of the labelled frames
    is_first: bool  # the memory of this slot is reset before it
    name: str  # of the recording
    vanished: int = 0  # boxes that the augmentation moved out of the picture


@dataclass(frozen=True, eq=False)
class ClipTimeline:
    """The frames of a recording that are used: some or all ends of its grid at one rate."""

    sampling: Sampling
    ends_us: Int64[np.ndarray, "all"]
    kept: Int64[np.ndarray, "n"]  # indices of the ends that are used, rising

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def step_us(self) -> float:
        """Mean step of the grid itself: some recordings stretch it to meet their labels."""
        ends_us = self.ends_us
        return float(self.sampling.step_us) if len(ends_us) < 2 else (int(ends_us[-1]) - int(ends_us[0])) / (len(ends_us) - 1)

    def tolerance_us(self, most_us: float) -> float:
        """How far a label may be from a frame's end. Half a step: an instant belongs to its nearest frame, and to no other."""
        return min(most_us, self.step_us / 2)

    def steps(self, first: int, length: int, is_first: bool) -> Float32[np.ndarray, "T"]:
        """dt of these frames: true elapsed time in windows; 1 where the memory is reset, as in streams and evaluations."""
        ends_us = self.ends_us[self.kept[first : first + length]]
        window_us = self.sampling.window_us
        before_us = ends_us[0] if is_first or not first else self.ends_us[self.kept[first - 1]]
        dt = elapsed(ends_us, np.concatenate(([before_us], ends_us[:-1])), window_us)
        if is_first or not first:
            dt[0] = FRESH_DT
        return dt.astype(np.float32)

    def read(self, recording: LabelledRecording, first: int, length: int) -> FrameArray:
        """The frames, consecutive ones with one call: those of a sliding window share their events."""
        kept = self.kept[first : first + length]
        runs = np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1)
        parts = [recording.frames(self.ends_us[run], self.sampling) for run in runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def labels_of(recording: LabelledRecording, timeline: ClipTimeline, first: int, length: int, tolerance_us: float) -> list[Labels | None]:
    """Labels of every frame of a clip; None = not labelled."""
    tolerance_us = timeline.tolerance_us(tolerance_us)
    return [recording.labels_at(int(end_us), tolerance_us) for end_us in timeline.ends_us[timeline.kept[first : first + length]]]


def seen_since(labels: list[Labels | None], start_us: int) -> list[Labels | None]:
    """Without objects that have stood still since before START_US, where that is known: they made no event that a memory could know of."""
    return [found if found is None or found.still_us is None else found[found.t - found.still_us > start_us] for found in labels]


def cut(
    recording: LabelledRecording,
    timeline: ClipTimeline,
    first: int,
    labels: list[Labels | None],
    augmentation: Augmentation,
    is_first: bool,
) -> Clip:
    """The clip of as many frames as LABELS from frame FIRST of the timeline on.

    A frame that loses all of its boxes to the augmentation counts as not labelled, as published: parts of objects may still be visible.
    """
    length = len(labels)
    frames = timeline.read(recording, first, length)
    if frames.shape[0] != length or frames.shape[2:] != (recording.height, recording.width):
        raise InputError(
            f"{recording.name}: expected {length} frames of {recording.width} x {recording.height} pixels, got an array {frames.shape}"
        )
    vanished, seen = 0, []
    for found in labels:
        if found is not None and len(found):
            before, (found, lost) = len(found), augment_labels(found, augmentation, recording.width, recording.height)
            vanished += lost
            found = None if lost == before else found
        seen.append(found)
    return Clip(
        frames=augment_frames(frames, augmentation, first),
        dt=timeline.steps(first, length, is_first),
        ends_us=timeline.ends_us[timeline.kept[first : first + length]],
        labelled=np.array([found is not None for found in seen]),
        labels=tuple(found for found in seen if found is not None),
        is_first=is_first,
        name=recording.name,
        vanished=vanished,
    )
