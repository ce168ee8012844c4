"""FOLDER -> DATA SET: one call for every kind, recognised by what the folder holds."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from saccade.datasets import layouts, rvt_tree
from saccade.datasets.prepare import is_prepared_dataset, open_prepared
from saccade.datasets.recording import Dataset, Halve, Sampling
from saccade.datasets.rules import LabelRules
from saccade.datasets.splits import Selection, select, shared_out, splits_in
from saccade.s3 import located
from saccade.types import InputError

log = logging.getLogger("saccade")

DatasetKind = Literal["gen1", "1mpx", "rvt", "dsec", "etram", "synthetic", "folder"]
BY_HASH = "no subfolders train, val, test and no splits.json: recordings are split 8 : 1 : 1 by a hash of their names"
EXPECTED = """expected one of
  gen1, 1mpx, etram: NAME_td.dat (etram: NAME_td.h5) + NAME_bbox.npy
  rvt: NAME/labels_v2/labels.npz + NAME/event_representations_v2/stacked_histogram_dt=50_nbins=10/event_representations.h5
  dsec: NAME/events/left/events.h5 + NAME/object_detections/left/tracks.npy, or both in NAME
  synthetic: dataset.json and NAME.h5 + NAME_labels.npz, as `saccade simulate` writes them
  folder: any recordings NAME.* + NAME.csv, or one COCO .json
each in subfolders train, val, test, or listed in splits.json"""


def open_dataset(
    path: str | Path, split: str = "train", kind: DatasetKind | None = None, *, rules: LabelRules | None = None, halve: Halve | None = None
) -> Dataset:
    """Open a split (train, val, test, or all) of a data set. Nothing is decoded yet.

        recording = saccade.open_dataset("gen1", "val").recordings[0]
        sampling = Sampling(rate_hz=100)
        frames = recording.frames(recording.ends_us(sampling)[:21], sampling)

    kind: the layout, where the content doesn't tell. What `prepare` wrote is always recognised.
    rules: which labels count, instead of the data set's own: its training rules for train, its evaluation rules for other splits.
    halve: frames of half the resolution, instead of the data set's own choice (1 Mpx and eTraM: by halved event coordinates). Take the
    `config.halved` of the weights; stored frames that were halved in another way are refused.
    """
    root = located(path)
    if kind is not None and kind not in get_args(DatasetKind):
        raise InputError(f"{root}: unknown kind={kind!r}; expected one of {', '.join(get_args(DatasetKind))}")
    chosen = select(root, split)
    if is_prepared_dataset(chosen):
        if rules is not None or kind is not None:
            raise InputError(f"{root}: is a prepared data set, whose kind and rules are fixed; prepare it again with others")
        return check_halving(open_prepared(chosen), halve)
    found = kind or _recognise(root, chosen)
    if found is None:
        raise InputError(f"{root}: no data set we know in it; {EXPECTED}")
    dataset = _open(root, chosen, found, rules, halve)
    if chosen.by_hash:
        shares = shared_out(recording.name for recording in dataset.recordings)
        dataset = replace(dataset, recordings=tuple(one for one in dataset.recordings if shares[one.name] == split))
    if not dataset.recordings:
        how = f" ({BY_HASH})" if chosen.by_hash else ""
        notes = "".join(f"\n  {note}" for note in dataset.missing[:5])
        raise InputError(f"{root}: no recordings of kind {found} in the split {split!r}{how}; {EXPECTED}{notes}")
    return replace(dataset, notes=(*dataset.notes, BY_HASH)) if chosen.by_hash else dataset


def join_datasets(datasets: Sequence[Dataset]) -> Dataset:
    """Several data sets as one: a training on drawn streets and photographs at once. They must have the same classes in the same order."""
    first = datasets[0]
    for other in datasets[1:]:
        if other.classes != first.classes:
            raise InputError(
                f"{other.name}, {other.split}: classes {', '.join(other.classes)} are not those of {first.name} "
                f"({', '.join(first.classes)}); data sets to be joined need the same ones in the same order"
            )
        if fixed_sampling(other) != fixed_sampling(first):
            raise InputError(f"{other.name}, {other.split}: holds frames of another sampling than {first.name}; prepare both alike")
    if len(datasets) == 1:
        return first
    return Dataset(
        " + ".join(dataset.name for dataset in datasets),
        first.split,
        first.classes,
        tuple(recording for dataset in datasets for recording in dataset.recordings),
        tuple(line for dataset in datasets for line in dataset.missing),
        tuple(line for dataset in datasets for line in dataset.notes),
    )


def open_to_score(path: str | Path, split: str | None = None, kind: DatasetKind | None = None, *, halve: Halve | None = None) -> Dataset:
    """A split; if none is named test, or else what there is, which is said."""
    root = located(path)
    if split is None and root.is_dir():
        there = splits_in(root) or (["all"] if (root / "all").is_dir() else [])
        there = there or list(shared_out(one.name for one in open_dataset(root, "all", kind, halve=halve).recordings).values())
        split = next(one for one in ("test", "val", "train", "all") if one in there)
        if split != "test":
            log.warning("%s: has no split test, so %s is scored; --split chooses", root, split)
    return open_dataset(root, split or "test", kind, halve=halve)


def open_to_validate(path: str | Path, kind: DatasetKind | None = None, *, halve: Halve | None = None) -> Dataset | None:
    """The split val; None if there are splits, but not this one, which is said."""
    there = splits_in(located(path))
    if there and "val" not in there:
        log.warning("%s: has no split val, only %s: nothing is validated, and there is no best.safetensors", path, ", ".join(there))
        return None
    return open_dataset(path, "val", kind, halve=halve)


def fixed_sampling(dataset: Dataset) -> Sampling | None:
    """The only sampling that a data set of stored frames can serve; None = any."""
    return dataset.recordings[0].fixed_sampling if dataset.recordings else None


def check_halving(dataset: Dataset, halved: Halve | None) -> Dataset:
    """The data set; InputError if its recordings are halved in another way. None = any will do."""
    if halved is None or not dataset.recordings:
        return dataset
    found = dataset.recordings[0].halve
    if found != halved:
        raise InputError(
            f"{dataset.name}, {dataset.split}: its frames have halved={found!r}, but halved={halved!r} is asked for; open or prepare the "
            f"raw recordings with that (`saccade prepare --halved {halved}`), or take weights or settings with halved={found!r}"
        )
    return dataset


def _recognise(root: Path, chosen: Selection) -> str | None:
    return (
        layouts.recognise_synthetic(root)
        or rvt_tree.recognise_rvt(chosen)
        or layouts.recognise_dsec(chosen)
        or layouts.recognise_family(chosen)
        or layouts.recognise_folder(root, chosen)
    )


def _open(root: Path, chosen: Selection, kind: str, rules: LabelRules | None, halve: Halve | None) -> Dataset:
    if kind in layouts.FAMILIES:
        return layouts.open_family(chosen, kind, rules, halve)
    if kind == "dsec":
        return layouts.open_dsec(chosen, rules, halve)
    if kind == "rvt":
        return check_halving(rvt_tree.open_rvt(chosen, rules), halve)
    if kind == "synthetic":
        return layouts.open_synthetic(root, chosen, rules, halve)
    return layouts.open_folder(root, chosen, rules, halve)
