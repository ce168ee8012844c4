"""CLASSES BY NAME: the part of a data set that a detector of other classes, or of the same in another order, can be scored on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from saccade.datasets.recording import Dataset, FrameArray, GroundTruth, Halve, Instants, LabelledRecording, Sampling, WindowEnds
from saccade.types import Detections, InputError, Labels

LEFT_OUT, IGNORED = -1, -2  # instead of a class's number: no label, or one that is neither to be found nor wrong to find


class Common(NamedTuple):
    """What a detector and a data set have in common."""

    dataset: Dataset  # its labels and classes are those that the detector knows, too
    places: tuple[int, ...]  # of the detector's classes among those; -1 = none of them
    notes: tuple[str, ...]  # what was left out, and names that differ in their capitals


def renumbered(detections: Sequence[Detections], places: tuple[int, ...]) -> list[Detections]:
    """A detector's answers with the classes of the data set, by `Common.places`; those of others are left out."""
    if places == tuple(range(len(places))):
        return list(detections)
    numbers = np.array(places, np.int64)
    return [replace(one[kept], classes=numbers[one.classes[kept]]) for one in detections for kept in [numbers[one.classes] >= 0]]


def places_of(names: Sequence[str], among: Sequence[str]) -> tuple[int, ...]:
    """Of each of NAMES; -1 if it isn't there. Capitals matter only where both spellings are."""
    lower = {name.casefold(): number for number, name in reversed(list(enumerate(among)))}
    return tuple(among.index(name) if name in among else lower.get(name.casefold(), -1) for name in names)


def in_common(classes: Sequence[str], dataset: Dataset, name: str) -> Common:
    """For a detector of these classes, called NAME in what is said; InputError if it knows none of the data set's."""
    places = places_of(classes, dataset.classes)
    kept = sorted({place for place in places if place >= 0})
    if not kept:
        raise InputError(
            f"{name} finds {', '.join(classes)}, but {dataset.name} has labels of {', '.join(dataset.classes)}; use weights that were "
            "trained for one of these, or give the classes the same names"
        )
    more = [one for one, place in zip(classes, places, strict=True) if place < 0]
    unknown = [one for number, one in enumerate(dataset.classes) if number not in kept]
    spelled = [f"{one} is taken for {dataset.classes[place]}" for one, place in zip(classes, places, strict=True)
               if place >= 0 and dataset.classes[place] != one]  # fmt: skip
    notes = [f"{name} also finds {', '.join(more)}, which {dataset.name} doesn't label: left out"] if more else []
    notes += [f"{dataset.name} also labels {', '.join(unknown)}, which {name} doesn't know: not scored"] if unknown else []
    notes += [f"{dataset.name}: {', '.join(spelled)}"] if spelled else []
    if unknown:
        numbers = tuple(kept.index(place) if place in kept else LEFT_OUT for place in range(len(dataset.classes)))
        dataset = _relabelled(dataset, tuple(dataset.classes[place] for place in kept), numbers)
    return Common(dataset, tuple(kept.index(place) if place >= 0 else -1 for place in places), tuple(notes))


def with_class_map(dataset: Dataset, names: Mapping[str, str]) -> Dataset:
    """DATASET with the classes of NAMES called otherwise, several maybe alike: {"bicycle": "two-wheeler", "rider": ""}.

    So that weights can be scored on a data set that tells other kinds of objects apart. An empty name: whoever finds such an object, as
    whatever, is neither right nor wrong.
    """
    places = dict(zip(names, places_of(tuple(names), dataset.classes), strict=True))
    unknown = [name for name, place in places.items() if place < 0]
    if unknown:
        raise InputError(f"class map: {dataset.name} has no class {unknown[0]!r}; it has {', '.join(dataset.classes)}")
    if dataset.name == "rvt":
        raise InputError("class map: rvt: which rules hold for RVT's trees is told by their classes; open the raw recordings")
    called = list(dataset.classes)
    for name, place in places.items():
        called[place] = names[name].strip()
    classes = tuple(dict.fromkeys(name for name in called if name))
    if not classes:
        raise InputError(f"class map: no class of {dataset.name} is left; give at least one a name")
    return _relabelled(dataset, classes, tuple(classes.index(name) if name else IGNORED for name in called))


def _relabelled(dataset: Dataset, classes: tuple[str, ...], numbers: tuple[int, ...]) -> Dataset:
    recordings = tuple(Relabelled(recording, numbers) for recording in dataset.recordings)
    return replace(dataset, classes=classes, recordings=recordings)


@dataclass(frozen=True)
class Relabelled:
    """A recording with the labels of some of its classes, numbered anew; all else is the recording's."""

    recording: LabelledRecording
    numbers: tuple[int, ...]  # of each of its classes: the new one, LEFT_OUT or IGNORED

    def __getattr__(self, name: str) -> Any:
        """Where its frames come from: `path` or `files`, if it has them."""
        if name not in ("path", "files"):
            raise AttributeError(name)
        return getattr(self.recording, name)

    @property
    def name(self) -> str:
        return self.recording.name

    @property
    def width(self) -> int:
        return self.recording.width

    @property
    def height(self) -> int:
        return self.recording.height

    @property
    def halve(self) -> Halve:
        return self.recording.halve

    @property
    def fixed_sampling(self) -> Sampling | None:
        return self.recording.fixed_sampling

    @property
    def instants_us(self) -> Instants:
        return self.recording.instants_us

    def ends_us(self, sampling: Sampling) -> WindowEnds:
        return self.recording.ends_us(sampling)

    def frames(self, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        return self.recording.frames(ends_us, sampling)

    def windows(self, starts_us: WindowEnds, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        return self.recording.windows(starts_us, ends_us, sampling)

    def event_counts(self, start_us: int, ends_us: WindowEnds) -> tuple[WindowEnds, int]:
        return self.recording.event_counts(start_us, ends_us)

    @property
    def truth(self) -> GroundTruth:
        truth = self.recording.truth
        ignored = None if truth.ignored is None else self._chosen(truth.ignored)
        if IGNORED in self.numbers:
            parts = [part for labels in (truth.labels, truth.ignored or Labels.empty()) for part in self._of_every_class(labels)]
            ignored = _in_order([*parts, ignored or Labels.empty()])
        return replace(truth, labels=self._chosen(truth.labels), ignored=ignored)

    @property
    def labels(self) -> Labels:
        return self.truth.labels

    def labels_at(self, end_us: int, tolerance_us: float) -> Labels | None:
        return self.truth.at(end_us, tolerance_us)

    def _chosen(self, labels: Labels) -> Labels:
        classes = np.array(self.numbers, np.int64)[labels.classes]
        return replace(labels[classes >= 0], classes=classes[classes >= 0])

    def _of_every_class(self, labels: Labels) -> list[Labels]:
        """Labels that are ignored, once for each class: whatever they are taken for doesn't count."""
        apart = labels[np.array(self.numbers, np.int64)[labels.classes] == IGNORED]
        return [replace(apart, classes=np.full(len(apart), number)) for number in range(max(self.numbers) + 1)]


def _in_order(parts: Sequence[Labels]) -> Labels:
    """What is asked of ignored labels: times, boxes and classes, by time."""
    t = np.concatenate([part.t for part in parts])
    order = np.argsort(t, kind="stable")
    boxes, classes, tracks = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("boxes", "classes", "tracks"))
    return Labels(t[order], boxes, classes, tracks)
