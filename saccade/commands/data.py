"""DATA SET -> what is in it, and a cache of it: `saccade check | prepare`."""

import sys
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from tqdm import tqdm

from saccade.cluster import LOCAL, check_place
from saccade.commands.options import On, RateOption, check_processes
from saccade.commands.recordings import LEAST, MOST
from saccade.datasets.check import alike_classes, check_dataset, shared_recordings
from saccade.datasets.open import DatasetKind, fixed_sampling, open_dataset
from saccade.datasets.prepare import prepare as prepare_dataset
from saccade.datasets.recording import Dataset, Halve, Sampling
from saccade.datasets.splits import splits_in
from saccade.outputs.sheet import BoxedFrame, write_boxed_sheet
from saccade.representation.windows import WindowKind
from saccade.types import InputError

Folder = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="DATASET",
        help="Folder of Gen1, 1 Mpx, RVT's preprocessed tree, DSEC, ..., or of your own recordings.",
    ),
]
CacheFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT", help="Folder to write.")]
Split = Literal["train", "val", "test", "all"]

PICTURES = 6


def check(
    dataset: Folder,
    *,
    split: Split | None = None,
    kind: DatasetKind | None = None,
    rate_hz: Annotated[float | None, tyro.conf.arg(name="rate")] = None,
    deep: bool = False,
    on: On = LOCAL,
    out: Path | None = None,
) -> None:
    """Count what DATASET holds and report what is wrong with it: broken files, labels outside recordings, duplicates, `Car` beside `car`.
    Exit code 1 if there are problems.

    Args:
        split: Only this split; all that are there if not given.
        kind: Layout of the data set; recognised by its files if not given.
        rate_hz: Frames per second of event time, to which labels are matched; 20, or that of stored frames, if not given.
        deep: Also decode every event, and report time that runs backwards and events outside the sensor.
        on: Where it is computed: local, or a Ray cluster, whose nodes see DATASET under the same name.
        out: Write a .png of labelled frames with their boxes; with several splits, one for each (OUT_train.png).
    """
    if out is not None and out.suffix.lower() != ".png":
        raise InputError(f"{out}: unknown suffix {out.suffix!r}; expected .png")
    check_place(on)
    datasets = [open_dataset(dataset, split, kind)] if split else _all_splits(dataset, kind)
    problems = 0
    for one in datasets:
        sampling = fixed_sampling(one) or Sampling()
        sampling = replace(sampling, rate_hz=rate_hz or sampling.rate_hz)
        with tqdm(total=len(one.recordings), desc=f"checking {one.split}", unit=" recordings", leave=False, disable=None) as bar:
            report = check_dataset(one, sampling, deep=deep, progress=partial(_tick, bar), on=on)
        problems += len(report.problems)
        print(report.text())
        if out is not None:
            path = out if len(datasets) == 1 else out.with_stem(f"{out.stem}_{one.split}")
            drawn = samples(one, sampling)
            write_boxed_sheet(path, drawn, one.classes, f"{one.name}, {one.split}, {sampling.rate_hz:g} Hz")
            print(f"{'picture':12}{path}, {len(drawn)} frames")
        print()
    shared = shared_recordings(datasets)
    shared += alike_classes(datasets)
    for line in shared:
        print(f"problem: {line}")
    problems += len(shared)
    print(f"{problems:,} problem{'' if problems == 1 else 's'}" if problems else "no problems")
    if problems:
        sys.exit(1)


def prepare(
    dataset: Folder,
    out: CacheFolder,
    *,
    what: Literal["frames", "events"] = "frames",
    split: Split | None = None,
    kind: DatasetKind | None = None,
    rate_hz: RateOption = 20.0,
    window: WindowKind = "sliding",
    window_ms: float = 50.0,
    bins: int = 10,
    histogram: Literal["exact", "published"] = "exact",
    halved: Halve | None = None,
    processes: int = 0,
    on: On = LOCAL,
) -> None:
    """Cache DATASET in OUT, as frames or as compact events; OUT opens as a data set. Run again after an interruption, it continues.

    Args:
        what: Frames serve one rate, events any rate. Not worth it for DAT files, which are read as fast; for text and slow disks.
        split: Only this split; all that are there if not given.
        kind: Layout of the data set; recognised by its files if not given.
        rate_hz: Frames per second of event time.
        window: Sliding windows keep their length at any rate, disjoint ones are as long as the step.
        window_ms: Length of a sliding window.
        bins: Time bins per window.
        histogram: How events are counted; published: bins from the first to the last event, as published weights expect.
        halved: Half resolution: by event coordinates, or odd pixels only, as published 1 Mpx weights expect; 1 Mpx and eTraM: events.
        processes: Number of processes; 0 = one per core.
        on: Where it is computed: local, or a Ray cluster, whose nodes see DATASET and OUT under the same names; the same bytes.
    """
    check_processes(processes)
    check_place(on)
    if not LEAST <= window_ms <= MOST:
        raise InputError(f"--window-ms {window_ms}: expected a number above 0, from {LEAST:g} to {MOST:g}")
    sampling = Sampling(rate_hz=rate_hz, kind=window, window_us=round(window_ms * 1000), bins=bins, histogram=histogram)
    failed = 0
    for one in [open_dataset(dataset, split, kind, halve=halved)] if split else _all_splits(dataset, kind, halved):
        with tqdm(total=len(one.recordings), desc=f"preparing {one.split}", unit=" recordings", leave=False, disable=None) as bar:
            told = partial(_tick, bar)
            broken = prepare_dataset(one, out, sampling, what=what, processes=processes or None, progress=told, on=on)
        for line in broken:
            print(f"left out: {line}")
        failed += len(broken)
        size = sum(path.stat().st_size for path in (out / one.split).rglob("*") if path.is_file())
        print(f"{out / one.split}: {len(one.recordings) - len(broken):,} recordings, {size / 1e6:,.1f} MB")
    if failed:
        raise InputError(f"{dataset}: {failed} recordings couldn't be prepared; mend or remove them and run the same command again")


def samples(dataset: Dataset, sampling: Sampling, number: int = PICTURES) -> list[BoxedFrame]:
    """Labelled frames with boxes, spread over the data set; broken recordings are skipped."""
    chosen: list[BoxedFrame] = []
    for i in dict.fromkeys(np.linspace(0, len(dataset.recordings) - 1, 4 * number).round().astype(int).tolist()):
        recording = dataset.recordings[i]
        wanted = ceil((number - len(chosen)) / max(len(dataset.recordings) - i, 1))
        try:
            ends_us = recording.ends_us(sampling)
            times = np.unique(recording.labels.t)
            for time_us in times[np.linspace(0, len(times) - 1, min(wanted, len(times))).round().astype(int)] if len(times) else ():
                index = int(np.abs(ends_us - time_us).argmin())
                labels = recording.labels_at(int(ends_us[index]), float(sampling.step_us) / 2)
                if labels is not None and len(chosen) < number:
                    data = recording.frames(ends_us[index : index + 1], sampling)[0]
                    title = f"{recording.name}, {ends_us[index] / 1e6:.3f} s"
                    chosen.append(BoxedFrame(title, data, labels.boxes, labels.classes))
        except InputError:
            continue
    return chosen


def _tick(bar: tqdm, name: str) -> None:
    bar.update()


def _all_splits(root: Path, kind: DatasetKind | None, halve: Halve | None = None) -> list[Dataset]:
    """Every split that is there; if the folder itself is a split, that one; without splits, all of it."""
    return [open_dataset(root, split, kind, halve=halve) for split in splits_in(root) or ["all"]]
