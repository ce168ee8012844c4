"""DETECTOR + DATA SET -> SCORES while training: every recording as one stream at the training rate, in memory."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from saccade.datasets.classes import in_common, renumbered
from saccade.datasets.recording import Dataset, LabelledRecording, Sampling
from saccade.evaluation.result import Answer, Metrics
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.passes import CHUNK, Decoding, passes_of, run
from saccade.evaluation.run.store import ignored_of, nothing_found
from saccade.evaluation.run.timeline import timeline
from saccade.evaluation.score.average_precision import average_precision, score
from saccade.evaluation.score.protocol import protocol_of
from saccade.model.detector import Detector


def validate(
    detector: Detector,
    dataset: Dataset,
    *,
    threshold: float = 0.1,
    protocol: str | None = None,
    recordings: int = 0,
    chunk: int = CHUNK,
    share: Callable[[list[Answer]], list[list[Answer]]] = lambda own: [own],
    rank: int = 0,
    world: int = 1,
) -> Metrics:
    """Scores at the training rate on the first RECORDINGS (0 = all). Of WORLD processes each takes its part; SHARE gathers all parts.

    protocol: what counts, and from which score on, instead of THRESHOLD: `prophesee` is the number that papers print.
    """
    rules = None if protocol is None else protocol_of(protocol, dataset)
    decoding = Decoding(threshold=threshold, across_iou=1.0)
    if rules is not None:
        decoding = rules.decoding
    common = in_common(detector.config.classes, dataset, detector.config.name)
    dataset = common.dataset
    chosen = list(dataset.recordings)[: recordings or None]
    own = [answer for recording in chosen[rank::world] for answer in answers_of(detector, recording, decoding, chunk=chunk)]
    every = [answer for part in share(own) for answer in part]
    order = {recording.name: number for number, recording in enumerate(chosen)}
    every.sort(key=lambda answer: (order[answer.recording], answer.instant_us))  # equal scores rank alike with any number of processes
    found = renumbered([answer.detections for answer in every], common.places)
    if rules is not None:
        return score([replace(answer, detections=one) for answer, one in zip(every, found, strict=True)], dataset.classes, rules)
    return average_precision([answer.labels for answer in every], found, dataset.classes)


def answers_of(detector: Detector, recording: LabelledRecording, decoding: Decoding, *, chunk: int = CHUNK) -> Iterator[Answer]:
    """What the detector says about every labelled instant at the training rate, after all frames before it."""
    condition = Condition(rate_hz=Sampling.of(detector.config).rate_hz)
    line = timeline(recording, condition, detector.config, label_rate_hz=condition.rate_hz, nearest=True)
    passes = passes_of(recording, line, condition, detector.config.window_us)
    found = [one for part in run(detector, passes, decoding, chunk=chunk) for one in part.detections]
    rows = np.cumsum(passes[0].wanted) - 1
    labels, ignored = recording.labels, ignored_of(recording)
    for instant_us, frame in zip(line.instants_us.tolist(), line.frame.tolist(), strict=True):
        first, last = np.searchsorted(labels.t, [instant_us, instant_us + 1])
        answer = Answer(recording.name, instant_us, labels[first:last], found[rows[frame]] if frame >= 0 else nothing_found())
        yield answer if ignored is None else replace(answer, ignored=ignored[ignored.t == instant_us])
