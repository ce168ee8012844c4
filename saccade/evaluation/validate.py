"""DETECTOR + DATA SET -> SCORES: every recording as one stream, its memory carried from the first frame to the last."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from saccade.config import DetectorConfig
from saccade.datasets.recording import Dataset, LabelledRecording, Sampling
from saccade.detection.decode import decode
from saccade.evaluation.average_precision import Scores, average_precision
from saccade.model.detector import Detector
from saccade.model.predictions import pick
from saccade.representation.canvas import Canvas
from saccade.types import Detections, Labels

TOLERANCE_US = 25_000


@dataclass(frozen=True, eq=False)
class Scored:
    """A labelled frame: what is there and what was found."""

    recording: str
    labels: Labels
    detections: Detections


def sampling_of(config: DetectorConfig) -> Sampling:
    """Frames as the detector was trained on: one window after the other."""
    return Sampling(rate_hz=1e6 / config.window_us, window_us=config.window_us, bins=config.bins, histogram=config.histogram)


def validate(
    detector: Detector,
    dataset: Dataset,
    *,
    threshold: float = 0.1,
    recordings: int = 0,
    chunk: int = 21,
    share: Callable[[list[Scored]], list[list[Scored]]] = lambda own: [own],
    rank: int = 0,
    world: int = 1,
) -> Scores:
    """Scores at the training rate on the first RECORDINGS (0 = all). Of WORLD processes each takes its part; SHARE gathers all parts."""
    chosen = list(dataset.recordings)[: recordings or None]
    own = [scored for recording in chosen[rank::world] for scored in detections_of(detector, recording, threshold=threshold, chunk=chunk)]
    every = [scored for part in share(own) for scored in part]
    order = {recording.name: number for number, recording in enumerate(chosen)}
    every.sort(
        key=lambda scored: (order[scored.recording], scored.detections.time_us)
    )  # equal scores rank alike with any number of processes
    return average_precision([scored.labels for scored in every], [scored.detections for scored in every], dataset.classes)


@torch.inference_mode()
def detections_of(detector: Detector, recording: LabelledRecording, *, threshold: float = 0.1, chunk: int = 21) -> Iterator[Scored]:
    """Every labelled frame of a recording, after all frames before it."""
    sampling = sampling_of(detector.config)
    device = next(detector.parameters()).device
    ends_us = recording.ends_us(sampling)
    canvas = Canvas.pad(recording.width, recording.height, detector.config.backbone.multiple)
    tolerance_us = min(TOLERANCE_US, float(sampling.step_us) / 2)
    state = None
    for first in range(0, len(ends_us), chunk):
        ends = ends_us[first : first + chunk]
        frames = torch.from_numpy(recording.frames(ends, sampling)).to(device)[:, None]
        state = detector.initial_state(frames) if state is None else state
        before = ends_us[first - 1 : first] if first else ends[:1] - round(float(sampling.step_us))
        dt = torch.from_numpy((np.diff(ends, prepend=before) / sampling.window_us).astype(np.float32))[:, None]
        pyramid, state = detector.encode(frames, state, dt.to(device))
        found = [recording.labels_at(int(end_us), tolerance_us) for end_us in ends]
        labelled = torch.tensor([labels is not None for labels in found])
        if not labelled.any():
            continue
        predictions = detector.detect(pick(pyramid, labelled[:, None].to(device)))
        decoded = iter(decode(predictions, ends[labelled.numpy()], canvas, threshold=threshold))
        for labels in found:
            if labels is not None:
                yield Scored(recording.name, labels, next(decoded))
