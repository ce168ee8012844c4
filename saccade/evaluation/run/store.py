"""ANSWERS <-> FILES: one .npz per condition and recording, whole or not there, with a fingerprint of what produced it."""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Int64

from saccade.arrays import check_archive, open_arrays
from saccade.datasets.recording import Instants, LabelledRecording, Sampling, content_of
from saccade.evaluation.result import Answer
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.passes import Decoding
from saccade.evaluation.run.timeline import Timeline
from saccade.events.reader import EARLIEST_US
from saccade.files import check_name, from_plain, replacing, to_plain
from saccade.model.detector import Detector
from saccade.s3 import located
from saccade.types import Detections, InputError, Labels

VERSION = 4
MANIFEST = "recordings.json"
SEGMENT = 512  # frames whose detections wait in memory
FrameNumbers = Int64[np.ndarray, "m"]
_LABEL_COLUMNS = tuple(field.name for field in fields(Labels))


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything that decides the answers about a recording, besides the recording itself."""

    weights: str  # digest
    condition: Condition
    decoding: Decoding
    classes: tuple[str, ...]
    label_rate_hz: float | None
    nearest: bool = False
    step_us: int | None = None  # time per step of the latency-aware answers; None if none are requested

    def fingerprint(self, recording: LabelledRecording, detector: Detector, computed_by: str = "torch") -> str:
        """Hash of the task and the recording: its files' content, how they are shown, its windows and its labels; and of the runtime,
        because the last digits of an answer depend on it."""
        ignored = ignored_of(recording)
        shown = recording.width, recording.height, recording.halve
        known = [VERSION, computed_by, asdict(self), recording.name, ignored is not None, shown, content_of(recording)]
        digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
        digest.update(recording.ends_us(Sampling.of(detector.config)).tobytes())
        digest.update(recording.instants_us.tobytes())
        for labels in (recording.labels, ignored or Labels.empty()):
            for column in (labels.t, labels.boxes, labels.classes):
                digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Kept:
    """Summary of the answers about a recording, stored beside them."""

    recording: str
    fingerprint: str
    frames: int  # that went through the network
    seconds: float
    recorded_s: float
    steps: int = 0  # that a live stream would make: the windows of one phase


@dataclass(frozen=True)
class Manifest:
    """The answers of one complete evaluation under one condition."""

    condition: Condition
    recordings: tuple[Kept, ...]


def digest_of(detector: Detector) -> str:
    """Hash of the weights and the config, independent of file and device."""
    digest = hashlib.sha256(detector.config.to_json().encode())
    for name, value in sorted(detector.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def path_of(out: Path, condition: Condition, recording: str) -> Path:
    return out / condition.name / f"{check_name(recording, out)}.npz"


class AnswerWriter:
    """Detections of a recording as they come; the file appears when it is complete."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()
        self._archive = self._stack.enter_context(zipfile.ZipFile(self._stack.enter_context(replacing(path)), "w"))
        self._waiting: dict[int, list[Detections]] = {}
        self._segments = 0

    def add(self, phase: int, found: Sequence[Detections]) -> None:
        """The next frames of a phase."""
        waiting = self._waiting.setdefault(phase, [])
        waiting.extend(found)
        if len(waiting) >= SEGMENT:
            self._write_segment(phase)

    def finish(self, kept: Kept, recording: LabelledRecording, line: Timeline, rows: FrameNumbers, late: FrameNumbers | None) -> None:
        """ROWS and LATE: which of the frames, in the order of phases and time, answers each instant, -1 = none."""
        for phase in sorted(self._waiting):
            self._write_segment(phase)
        for what, labels in (("labels", recording.labels), ("ignored", ignored_of(recording))):
            if labels is not None:
                self._write_labels(what, labels[np.isin(labels.t, line.instants_us)])
        self._write("instants_us", line.instants_us)
        self._write("rows", rows)
        if late is not None:
            self._write("late", late)
        self._write("kept", np.array(json.dumps(asdict(kept))))
        self._stack.close()

    def __enter__(self) -> "AnswerWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        unfinished = error or InterruptedError("left before `finish`")  # after `finish` there is nothing left to undo
        self._stack.__exit__(type(unfinished), unfinished, trace)

    def _write_segment(self, phase: int) -> None:
        found, self._waiting[phase] = self._waiting[phase], []
        columns = {
            "times_us": np.array([one.time_us for one in found], np.int64),
            "counts": np.array([len(one) for one in found], np.int64),
            "boxes": np.concatenate([np.zeros((0, 4), np.float32), *(one.boxes for one in found)]),
            "scores": np.concatenate([np.zeros(0, np.float32), *(one.scores for one in found)]),
            "classes": np.concatenate([np.zeros(0, np.int64), *(one.classes for one in found)]).astype(np.int16),
        }
        for name, column in columns.items():
            self._write(f"{name}.{phase:04}.{self._segments:06}", column)
        self._segments += 1

    def _write_labels(self, what: str, labels: Labels) -> None:
        for name in _LABEL_COLUMNS:
            if getattr(labels, name) is not None:
                self._write(f"{what}.{name}", getattr(labels, name))

    def _write(self, name: str, array: np.ndarray) -> None:
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)


def read_kept(path: Path) -> Kept | None:
    """None if the file is missing or damaged anywhere."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path)  # before anything of it is unpacked
            if archive.testzip() is not None:
                return None
        with open_arrays(path) as arrays:
            return cast(Kept, from_plain(Kept, json.loads(str(arrays["kept"])), str(path)))
    except Exception:  # zipfile and numpy raise nearly everything on a damaged file
        return None


def read_answers(path: Path, kept: Kept) -> list[Answer]:
    """All answers about a recording, in the order of time."""
    if read_kept(path) != kept:
        raise InputError(f"{path}: was changed since the evaluation that lists it; evaluate again")
    with open_arrays(path) as arrays:
        names = sorted(name for name in arrays.files if name.startswith("counts."))
        found = [one for name in names for one in _detections(arrays, name.removeprefix("counts."))]
        instants_us, rows = arrays["instants_us"], arrays["rows"].tolist()
        labels, ignored = _labels(arrays, "labels", instants_us), _labels(arrays, "ignored", instants_us)
        late = arrays["late"].tolist() if "late" in arrays else None

    def at(row: int) -> Detections:
        return found[row] if row >= 0 else nothing_found()

    return [
        Answer(kept.recording, instant_us, labels[i], at(rows[i]), None if late is None else at(late[i]), ignored[i] if ignored else None)
        for i, instant_us in enumerate(instants_us.tolist())
    ]


def _labels(arrays: Any, what: str, instants_us: Instants) -> list[Labels]:
    """The labels of every instant; an empty list if the file has none of that kind."""
    if f"{what}.t" not in arrays:
        return []
    every = Labels(**{name: arrays[f"{what}.{name}"] for name in _LABEL_COLUMNS if f"{what}.{name}" in arrays})
    firsts, lasts = np.searchsorted(every.t, instants_us), np.searchsorted(every.t, instants_us, "right")
    return [every[first:last] for first, last in zip(firsts, lasts, strict=True)]


def ignored_of(recording: LabelledRecording) -> Labels | None:
    """Labels of objects that are present but that the rules left out; None if they aren't known."""
    return recording.truth.ignored


def nothing_found() -> Detections:
    """Where no frame has ended yet."""
    return Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), EARLIEST_US)


def write_manifest(out: Path, condition: Condition, kept: Sequence[Kept]) -> None:
    """List the files of the newest evaluation: older ones may lie beside them."""
    folder = out / condition.name
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(to_plain(Manifest(condition, tuple(kept))), indent=1))


def answers_at(out: Path, condition: Condition) -> Iterator[Answer]:
    """What `evaluate` kept in OUT, recording by recording in the order of time."""
    path = located(out) / condition.name / MANIFEST
    try:
        manifest: Manifest = from_plain(Manifest, json.loads(path.read_text()), MANIFEST)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no complete evaluation of {condition.name} ({error!r:.100}); run `saccade evaluate` with it") from error
    if manifest.condition != condition:
        raise InputError(f"{path}: is of {manifest.condition}, not of {condition}; evaluate again")
    for kept in manifest.recordings:
        yield from read_answers(path_of(located(out), condition, kept.recording), kept)


def _detections(arrays: Any, suffix: str) -> Iterator[Detections]:
    times_us, counts, boxes, scores, classes = (arrays[f"{name}.{suffix}"] for name in ("times_us", "counts", "boxes", "scores", "classes"))
    last = np.cumsum(counts)
    for time_us, a, b in zip(times_us.tolist(), last - counts, last, strict=True):
        yield Detections(boxes[a:b], scores[a:b], classes[a:b].astype(np.int64), time_us)
