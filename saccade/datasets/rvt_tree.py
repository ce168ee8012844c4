"""PREPROCESSED RVT TREE -> DATA SET: labels_v2 and event_representations_v2, as many have downloaded them."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from saccade.arrays import load_arrays
from saccade.datasets.labels import from_records
from saccade.datasets.layouts import FAMILIES
from saccade.datasets.recording import BaseRecording, Dataset, FrameArray, GroundTruth, Halve, Sampling, WindowEnds
from saccade.datasets.rules import LabelRules, apply_rules
from saccade.datasets.splits import Selection
from saccade.datasets.stored import frame_shape, index_of_ends, read_frames
from saccade.types import InputError

LABELS = "labels_v2/labels.npz"
FRAMES = "event_representations_v2"
FILES = ("event_representations_ds2_nearest.h5", "event_representations.h5")  # halved ones first: that is how 1 Mpx is used
FOLDER_NAME = re.compile(r"stacked_histogram_dt=(\d+(?:\.\d+)?)_nbins=(\d+)")


@dataclass(frozen=True)
class FrameFolder:
    """One folder of representations: window length and bins are in its name, the rate is in its times."""

    path: Path
    window_us: int
    bins: int
    ends_us: WindowEnds

    @property
    def step_us(self) -> float:
        return float(np.median(np.diff(self.ends_us))) if len(self.ends_us) > 1 else float(self.window_us)

    @property
    def sampling(self) -> Sampling:
        rate_hz = float(f"{1e6 / self.step_us:.3g}")  # windows are stretched to end at labels, so their rate is a little off
        return Sampling(rate_hz=rate_hz, window_us=self.window_us, bins=self.bins, histogram="published")

    def serves(self, sampling: Sampling) -> bool:
        window_us = sampling.window_us if sampling.kind == "sliding" else self.step_us
        same_step = abs(self.step_us - float(sampling.step_us)) <= 0.01 * self.step_us
        return same_step and abs(window_us - self.window_us) <= 0.01 * self.window_us and sampling.bins == self.bins

    def __str__(self) -> str:
        return f"{1e6 / self.step_us:g} Hz with windows of {self.window_us / 1000:g} ms in {self.bins} bins ({self.path.parent.name})"


@dataclass(frozen=True, eq=False)
class RvtRecording(BaseRecording):
    """One sequence of the tree. Its frames are published histograms of one rate: for any other, use the raw recordings."""

    name: str
    folder: Path
    rules: LabelRules
    sensor: tuple[int, int]  # that the labels are for

    @cached_property
    def stored(self) -> list[FrameFolder]:
        return list(find_stored(self.folder))

    @cached_property
    def frame_size(self) -> tuple[int, int]:
        if not self.stored:
            raise InputError(f"{self.folder / FRAMES}: no stacked_histogram_dt=MS_nbins=BINS/{FILES[1]}; only those have a rate")
        _, _, height, width = frame_shape(self.stored[0].path)
        return width, height

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(stored.path for stored in self.stored)

    @property
    def fixed_sampling(self) -> Sampling | None:
        return self.stored[0].sampling if self.stored else None

    @property
    def halve(self) -> Halve:
        """The published code halves in one way only."""
        return "published" if self.width < self.sensor[0] else "no"

    @cached_property
    def truth(self) -> GroundTruth:
        path = self.folder / LABELS
        arrays = load_arrays(path)
        if "labels" not in arrays:
            raise InputError(f"{path}: no array `labels`, only {', '.join(arrays)}; expected labels and objframe_idx_2_label_idx")
        raw = from_records(arrays["labels"], str(path))
        truth = apply_rules(raw, self.rules, *self.sensor, scale=self.width / self.sensor[0])
        return replace(truth, ignored=None)  # not known: the published preprocessing has dropped most of them already

    def ends_us(self, sampling: Sampling) -> WindowEnds:
        return self._serving(sampling).ends_us

    def frames(self, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        stored = self._serving(sampling)
        first = index_of_ends(ends_us, stored.ends_us, self.name)
        return read_frames(stored.path, first, first + len(ends_us))

    def windows(self, starts_us: WindowEnds, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        raise InputError(
            f"{self.folder}: holds frames ({'; '.join(map(str, self.stored)) or 'none'}) and no events, "
            "so there are no windows at other places; use the raw recordings (*_td.dat)"
        )

    def _serving(self, sampling: Sampling) -> FrameFolder:
        found = next((stored for stored in self.stored if stored.serves(sampling)), None)
        if found is None:
            raise InputError(
                f"{self.folder}: has {'; '.join(map(str, self.stored)) or 'no frames'}, but {sampling.rate_hz:g} Hz, {sampling.kind}, "
                f"{sampling.window_us / 1000:g} ms, {sampling.bins} bins was asked for; use the raw recordings (*_td.dat) for other rates"
            )
        if sampling.histogram != "published":
            raise InputError(f"{self.folder}: has published histograms; ask for histogram='published', or use the raw recordings")
        return found


def find_stored(folder: Path) -> list[FrameFolder]:
    """The folders of representations that have a rate; those of a fixed number of events (ne=) have none."""
    found = []
    for place in sorted((folder / FRAMES).glob("stacked_histogram_dt=*")):
        named = FOLDER_NAME.fullmatch(place.name)
        path = next((place / name for name in FILES if (place / name).is_file()), None)
        if named and path:
            ends = load_arrays(place / "timestamps_us.npy")[""]
            ends = ends[:, 1] if ends.ndim == 2 and ends.shape[1] == 2 else ends
            if ends.ndim != 1 or ends.dtype.kind not in "iu" or (np.diff(ends.astype(np.int64)) <= 0).any():
                raise InputError(f"{place / 'timestamps_us.npy'}: expected rising window ends (n,) or [start, end] (n, 2) in microseconds")
            if frame_shape(path)[0] != len(ends):
                raise InputError(f"{path}: has {frame_shape(path)[0]} frames for {len(ends)} times; it is damaged or half-written")
            found.append(FrameFolder(path, round(float(named[1]) * 1000), int(named[2]), ends.astype(np.int64)))
    return found


def recognise_rvt(chosen: Selection) -> str | None:
    return "rvt" if next(chosen.folder.rglob(LABELS), None) else None


def open_rvt(chosen: Selection, own_rules: LabelRules | None = None) -> Dataset:
    """Gen1's or 1 Mpx's tree, by the size of its frames. The labels on disk are already thinned, so only the other rules are applied."""
    folders = sorted(path.parents[1] for path in chosen.folder.rglob(LABELS))
    names = [folder.relative_to(chosen.folder).as_posix() for folder in folders]
    pairs = [(name, folder) for name, folder in zip(names, folders, strict=True) if chosen.has(name)]
    usable = [(name, folder) for name, folder in pairs if any((folder / FRAMES).glob(f"*_dt=*/{FILES[1][:-3]}*.h5"))]
    missing = [
        f"{folder}: has labels but no frames with a rate (stacked_histogram_dt=...)"
        for name, folder in pairs
        if (name, folder) not in usable
    ]
    if not usable:
        return Dataset("rvt", chosen.split, (), (), tuple(missing))
    path = find_stored(usable[0][1])[0].path
    _, _, height, width = frame_shape(path)
    families = {(304, 240): "gen1", (1280, 720): "1mpx", (640, 360): "1mpx"}
    if (width, height) not in families:
        raise InputError(f"{path}: frames of {width} x {height}; expected 304 x 240 (Gen1), 1280 x 720 or 640 x 360 (1 Mpx)")
    family = FAMILIES[families[width, height]]
    used = own_rules or replace(family.training if chosen.split == "train" else family.evaluation, rate_hz=None)
    recordings = tuple(RvtRecording(name, folder, used, family.sensor) for name, folder in usable)
    return Dataset("rvt", chosen.split, used.classes, recordings, tuple(missing))
