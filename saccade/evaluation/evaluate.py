"""WEIGHTS + DATA SET + CONDITIONS -> EVALUATION: every rate scored at the same instants, resumable, in several processes."""

import json
import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from saccade.cluster import LOCAL, check_place
from saccade.datasets.classes import in_common
from saccade.datasets.open import check_halving, fixed_sampling
from saccade.datasets.recording import Dataset, LabelledRecording, Sampling
from saccade.evaluation.interval import packed
from saccade.evaluation.result import Cost, Evaluation, Result
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.passes import measured_step_ms
from saccade.evaluation.run.store import Kept, Task, answers_at, digest_of, write_manifest
from saccade.evaluation.run.timeline import timeline
from saccade.evaluation.run.work import RecordingBatch, work
from saccade.evaluation.score.average_precision import curves, metrics_of, parts_by_speed, parts_by_still, score_late
from saccade.evaluation.score.bootstrap import draws_of
from saccade.evaluation.score.coco import flatten
from saccade.evaluation.score.ghosts import ghosts
from saccade.evaluation.score.protocol import Protocol, protocol_of
from saccade.events.reader import EARLIEST_US
from saccade.export.runtime import open_runtime
from saccade.files import only_writer, replacing
from saccade.machine import device_named
from saccade.model.detector import Detector
from saccade.representation.canvas import whole_sensor
from saccade.s3 import located
from saccade.stream.familiar import Familiar
from saccade.types import InputError
from saccade.weights.load import load_detector

__all__ = ["answers_at", "evaluate"]

log = logging.getLogger("saccade")

STEP = "step.json"  # holds the measured time per step: a second measurement would differ, and with it the late answers


def evaluate(
    weights: Path | str | Detector,
    dataset: Dataset,
    conditions: Sequence[Condition],
    *,
    out: Path | None = None,
    protocol: str = "saccade",
    recordings: int = 0,
    label_rate_hz: float = 20.0,
    batch: int = 8,
    processes: int = 1,
    latency_ms: float | Literal["measured"] | None = None,
    device: str = "auto",
    progress: Callable[[str, float], None] | None = None,
    on: str = LOCAL,
) -> Evaluation:
    """Score WEIGHTS (a file, a shipped name or a detector) on a split under every condition, at the same labelled instants.

    out: folder for the answers per condition and recording; a second call resumes, and replaces answers of other weights or settings.
    None = a temporary one. recordings: only the first so many; 0 = all. label_rate_hz: denser labels are thinned to it. batch: recordings
    that go through a GPU together; on a CPU each goes alone, which is as fast, and no bit of an answer depends on batch, processes or
    interruptions. processes: each with one thread, for the same reason. latency_ms: time per step for the latency-aware score. progress:
    called with the name of the condition and the seconds of recording that are done since the last call. on: local, ray or ray://HEAD:PORT:
    a cluster needs OUT, seen by all its nodes, and takes as many processes as it has CPUs.
    """
    check_place(on)
    if on != LOCAL and out is None:
        raise InputError(f"evaluate: on={on} needs a folder that all nodes see, for their answers; give out (--out FOLDER)")
    _check(conditions, recordings, label_rate_hz, batch, processes, latency_ms)
    detector, name = _load(weights, dataset, device)
    rules = protocol_of(protocol, dataset)
    common = in_common(detector.config.classes, dataset, name)
    for note in common.notes:
        log.warning("%s", note)
    dataset = common.dataset
    chosen = tuple(dataset.recordings)[: recordings or None]
    if not chosen:
        raise InputError(f"evaluate: {dataset.name} has no recordings in its split {dataset.split}; choose another")
    Familiar(detector.config).sensor(whole_sensor(chosen[0].width, chosen[0].height))  # of its frames, which are scored as they are
    together = batch if next(detector.parameters()).device.type == "cuda" else 1
    with ExitStack() as stack:
        folder = located(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out)
        stack.enter_context(only_writer(folder))
        base = Task(
            weights=digest_of(detector),
            condition=conditions[0],
            decoding=rules.decoding,
            classes=dataset.classes,
            label_rate_hz=label_rate_hz,
            nearest=fixed_sampling(dataset) is not None,
        )
        tasks = [_with_latency(replace(base, condition=one), latency_ms, detector, chosen, folder) for one in conditions]
        batches = [
            RecordingBatch(task, chosen[i : i + together], folder, common.places) for task in tasks for i in range(0, len(chosen), together)
        ]
        kept: dict[Condition, dict[str, Kept]] = {one: {} for one in conditions}
        for piece, finished in work(detector, batches, processes, progress or (lambda name, seconds: None), on):
            kept[piece.task.condition].update({one.recording: one for one in finished})
        results = [_result(task, [kept[task.condition][recording.name] for recording in chosen], folder, rules) for task in tasks]
    return Evaluation(
        weights=name,
        model=detector.config.name,
        dataset=dataset.name,
        split=dataset.split,
        protocol=protocol,
        recordings=len(chosen),
        classes=tuple(dataset.classes),
        results=tuple(results),
        training_rate_hz=Sampling.of(detector.config).rate_hz,
        names=tuple(recording.name for recording in chosen),
    )


def _result(task: Task, kept: Sequence[Kept], folder: Path, rules: Protocol) -> Result:
    write_manifest(folder, task.condition, kept)
    answers = list(answers_at(folder, task.condition))
    classes, flat = task.classes, flatten(answers, len(task.classes), rules)
    ages_us = [answer.instant_us - answer.detections.time_us for answer in answers if answer.detections.time_us != EARLIEST_US]
    step_ms = None if task.step_us is None else task.step_us / 1000
    return Result(
        condition=task.condition,
        scores=metrics_of(flat, classes),
        cost=Cost(
            frames=sum(one.frames for one in kept),
            seconds=sum(one.seconds for one in kept),
            recorded_s=sum(one.recorded_s for one in kept),
            step_ms=step_ms,
            steps=sum(one.steps for one in kept),
        ),
        streaming=score_late(answers, classes, rules),
        age_ms=sum(ages_us) / len(ages_us) / 1000 if ages_us else float("nan"),
        by_still_s=parts_by_still(flat),
        by_speed_px_s=parts_by_speed(flat),
        curves=curves(flat, classes),
        ghosts=ghosts(answers),
        draws={score: packed(drawn) for score, drawn in draws_of(flat).items()},
    )


def _with_latency(
    task: Task, latency_ms: float | str | None, detector: Detector, chosen: Sequence[LabelledRecording], folder: Path
) -> Task:
    if latency_ms is None:
        return task
    if latency_ms == "measured":
        latency_ms = _measured_ms(task, detector, chosen[0], folder / STEP)
    return replace(task, step_us=round(float(latency_ms) * 1000))


def _measured_ms(task: Task, detector: Detector, recording: LabelledRecording, path: Path) -> float:
    """Measured once for all conditions: a step is the same work in each, but the load of the machine changes."""
    try:
        before = json.loads(path.read_text())
        if before["weights"] == task.weights:
            return float(before["step_ms"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not measured yet
    phase = timeline(recording, task.condition, detector.config, task.label_rate_hz, task.nearest).phases[0]
    step_ms = measured_step_ms(open_runtime(detector, device=str(next(detector.parameters()).device)), recording, phase, task.decoding)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"weights": task.weights, "step_ms": step_ms}))
    return step_ms


def _load(weights: Path | str | Detector, dataset: Dataset, device: str) -> tuple[Detector, str]:
    """The detector on its device, and its name for tables."""
    device = device_named(device)
    if isinstance(weights, Detector):
        detector, name = weights.to(device).eval(), weights.config.name
    else:
        detector, name = load_detector(weights, device), str(weights)
    check_halving(dataset, detector.config.halved)
    return detector, name


def _check(
    conditions: Sequence[Condition], recordings: int, label_rate_hz: float, batch: int, processes: int, latency_ms: float | str | None
) -> None:
    names = [condition.name for condition in conditions]
    if not names or len(set(names)) != len(names):
        raise InputError(f"evaluate: conditions {', '.join(names) or '(none)'}; expected at least one, and each once")
    for condition in conditions:
        if condition.min_rate_hz > condition.rate_hz:
            raise InputError(
                f"evaluate: {condition.name}: an adaptive rate from {condition.min_rate_hz:g} to {condition.rate_hz:g} Hz; swap them, or "
                "leave out the rates below the lowest"
            )
    if batch < 1 or processes < 1 or recordings < 0 or not label_rate_hz > 0:
        raise InputError(
            f"evaluate: batch={batch} and processes={processes} must be at least 1, recordings={recordings} 0 or more, "
            f"label_rate_hz={label_rate_hz} above 0"
        )
    if latency_ms is not None and latency_ms != "measured" and not (isinstance(latency_ms, (int, float)) and 0 <= latency_ms < 1e6):
        raise InputError(f"evaluate: latency_ms={latency_ms!r} must be a time in milliseconds, or `measured`")
