"""DATA SET -> REPORT: counts, broken files, labels outside recordings, duplicates, recordings in two splits."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from saccade.cluster import LOCAL, spread
from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import Dataset, LabelledRecording, Sampling, match
from saccade.events.statistics import measure
from saccade.types import InputError

log = logging.getLogger("saccade")

COMPARED_BYTES = 1 << 16  # at the beginning and at the end of two recordings
QUIET = 0.2  # share of labelled instants that may lie outside the events: before the first and after the last one, a sensor may see nothing
LISTED = 10  # problems of a kind that the text shows


@dataclass(frozen=True)
class RecordingReport:
    """One recording in numbers. A broken one has `problems` and nothing else."""

    name: str
    problems: tuple[str, ...] = ()
    duration_us: int = 0
    frames: int = 0
    instants: int = 0  # labelled
    boxes: tuple[int, ...] = ()  # per class
    dropped: Counter = field(default_factory=Counter)  # boxes, by the rule
    duplicates: int = 0  # boxes equal to another to the last digit
    outside: int = 0  # labelled instants before or after the recording
    unmatched: int = 0  # labelled instants inside the recording that get no frame: another instant is nearer, or none ends near enough


@dataclass(frozen=True)
class DatasetReport:
    name: str
    split: str
    classes: tuple[str, ...]
    recordings: tuple[RecordingReport, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    sampling: Sampling

    @property
    def problems(self) -> list[str]:
        """All that is wrong, one text each."""
        found = list(self.missing)
        for recording in self.recordings:
            found += [f"{recording.name}: {problem}" for problem in recording.problems]
        return found

    def text(self) -> str:
        whole = [recording for recording in self.recordings if recording.boxes]
        boxes = np.sum([recording.boxes for recording in whole], axis=0) if whole else np.zeros(len(self.classes), np.int64)
        instants, frames = sum(r.instants for r in whole), sum(r.frames for r in whole)
        lost = sum(recording.unmatched + recording.outside for recording in whole)
        dropped = sum((recording.dropped for recording in whole), Counter())
        seconds = sum(recording.duration_us for recording in whole) / 1e6
        lines = [
            ("data set", f"{self.name}, split {self.split}"),
            ("recordings", f"{len(self.recordings):,}, {seconds / 3600:.2f} h, {len(self.recordings) - len(whole):,} broken"),
            ("frames", f"{frames:,} at {self.sampling.rate_hz:g} Hz"),
            ("labelled", f"{instants:,} instants, {lost:,} of them get no frame"),
            ("boxes", ", ".join(f"{n:,} {name}" for name, n in zip(self.classes, boxes.tolist(), strict=True))),
            ("dropped", ", ".join(f"{n:,} {reason}" for reason, n in dropped.items() if n) or "none"),
        ]
        text = [f"{name:12}{value}" for name, value in lines]
        text += [f"note: {note}" for note in self.notes]
        problems = self.problems
        text += [f"problem: {problem}" for problem in problems[:LISTED]]
        if len(problems) > LISTED:
            text.append(f"problem: ... and {len(problems) - LISTED:,} more")
        return "\n".join(text)


def check_dataset(
    dataset: Dataset,
    sampling: Sampling | None = None,
    *,
    deep: bool = False,
    processes: int | None = 1,
    progress: Callable[[str], None] | None = None,
    on: str = LOCAL,
) -> DatasetReport:
    """Open every recording and read its labels; with DEEP, decode every event, too. None: one process per core. on: local, ray or ray://..."""
    sampling = sampling or Sampling()
    work = partial(_check_numbered, classes=len(dataset.classes), sampling=sampling, deep=deep)
    reports: dict[int, RecordingReport] = {}
    for (number, recording), found in spread(work, list(enumerate(dataset.recordings)), processes, on=on, what="check"):
        reports[number] = found
        if progress:
            progress(recording.name)
    ordered = tuple(reports[number] for number in sorted(reports))
    return DatasetReport(dataset.name, dataset.split, dataset.classes, ordered, dataset.missing, dataset.notes, sampling)


def _check_numbered(piece: tuple[int, LabelledRecording], classes: int, sampling: Sampling, deep: bool) -> RecordingReport:
    return _check_one(piece[1], classes, sampling, deep)


def _check_one(recording: LabelledRecording, classes: int, sampling: Sampling, deep: bool) -> RecordingReport:
    try:
        truth, ends_us = recording.truth, recording.ends_us(sampling)
        report = RecordingReport(
            recording.name,
            boxes=tuple(np.bincount(truth.labels.classes, minlength=classes).tolist()),
            instants=len(truth.instants_us),
            dropped=Counter(truth.dropped),
            duplicates=truth.duplicates,
        )
        if len(ends_us):
            report = _match_labels(report, truth.instants_us, ends_us, sampling)
            recording.frames(ends_us[:1], sampling), recording.frames(ends_us[-1:], sampling)
        return replace(report, problems=tuple(_problems(report, recording, deep)))
    except InputError as error:
        return RecordingReport(recording.name, problems=(str(error),))


def _match_labels(report: RecordingReport, instants_us: np.ndarray, ends_us: np.ndarray, sampling: Sampling) -> RecordingReport:
    step_us = float(sampling.step_us)
    # one step more on each side: a sensor may see nothing there
    inside = (instants_us >= ends_us[0] - step_us) & (instants_us <= ends_us[-1] + step_us)
    tolerance_us = min(step_us, int(np.diff(ends_us).min())) / 2 if len(ends_us) > 1 else step_us / 2
    unmatched = int((match(instants_us, ends_us, tolerance_us).unused & inside).sum())
    duration_us = int(ends_us[-1] - ends_us[0] + step_us)
    return replace(report, duration_us=duration_us, frames=len(ends_us), outside=int((~inside).sum()), unmatched=unmatched)


def _problems(report: RecordingReport, recording: LabelledRecording, deep: bool) -> list[str]:
    found = []
    if not report.frames:
        found.append("has no events")
    if not any(report.boxes) and (not report.instants or report.dropped.total()):  # labelled as empty is fine: simulated streets may be
        found.append("has no label that counts")
    if report.outside > QUIET * report.instants:
        found.append(
            f"{report.outside} labelled instants lie outside the recording; are their times those of the events? "
            "(in csv and COCO, elapsed_us is the time since the first event)"
        )
    if report.duplicates:
        found.append(f"{report.duplicates} boxes repeat another one exactly")
    if deep and isinstance(recording, EventRecording):
        with recording.open() as reader:
            statistics = measure(reader, width=reader.width, height=reader.height)
        if statistics.backwards:
            found.append(f"time runs backwards at {statistics.backwards:,} events; mend it with `saccade convert --sort`")
        if statistics.outside:
            found.append(f"{statistics.outside:,} events lie outside the sensor; they are left out of the frames")
    return found


def shared_recordings(datasets: Sequence[Dataset]) -> list[str]:
    """Recordings that are in two splits, by name or by content: scores on them would be too high."""
    seen: dict[object, str] = {}
    found = []
    for dataset in datasets:
        for recording in dataset.recordings:
            here = f"{dataset.split}/{recording.name}"
            keys = [recording.name.rsplit("/", 1)[-1], _digest(recording.path) if isinstance(recording, EventRecording) else None]
            other = next((seen[key] for key in keys if key in seen and not seen[key].startswith(f"{dataset.split}/")), None)
            if other:
                found.append(f"{here} and {other} are the same recording in two splits")
            for key in keys:
                if key is not None:
                    seen.setdefault(key, here)
    return found


def alike_classes(datasets: Sequence[Dataset]) -> list[str]:
    """Names that differ in capitals or in the space around them, in one split or in two: probably one class that is written in two ways."""
    spellings: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for dataset in datasets for name in dataset.classes):
        spellings.setdefault("".join(name.split()).casefold(), []).append(name)
    return [f"classes {', '.join(map(repr, names))} are probably one" for names in spellings.values() if len(names) > 1]


def _digest(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            start = file.read(COMPARED_BYTES)
            file.seek(max(size - COMPARED_BYTES, 0))
            return sha256(str(size).encode() + start + file.read(COMPARED_BYTES)).digest()
    except OSError:
        return None


def warn_of_dropped_labels(dataset: Dataset) -> None:
    """Log how many boxes the rules of the data set drop, by reason, and its notes: dropped labels go unnoticed otherwise."""
    for note in (*dataset.notes, *dataset.missing):
        log.warning("%s, %s: %s", dataset.name, dataset.split, note)
    dropped: Counter[str] = Counter()
    kept = 0
    for recording in dataset.recordings:
        dropped.update(recording.truth.dropped)
        kept += len(recording.truth.labels)
    if dropped.total():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)
        log.warning("%s, %s: of %d boxes the rules leave out %s", dataset.name, dataset.split, kept + dropped.total(), reasons)
    if dataset.recordings and not kept and dropped.total():
        raise InputError(f"{dataset.name}, {dataset.split}: the rules leave no box; `saccade check` shows the labels")
