"""FOLDER + SPLIT -> which recordings: by subfolders, by a splits.json, or by a hash of the name."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from saccade.files import check_name
from saccade.types import InputError

FOLDERS = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
LISTED = 'expected {"train": [names of recordings], "val": [...], "test": [...]}'  # in splits.json
SHARES = (("train", 0.8), ("val", 0.9), ("test", 1.0))  # split by hash: up to which fraction of the range


@dataclass(frozen=True)
class Selection:
    """The recordings of a split: all of a folder, or those of it that a list or the hash names."""

    folder: Path
    split: str
    names: frozenset[str] | None = None  # None = all
    by_hash: bool = False  # `open_dataset` shares out the recordings, once it knows all of them

    def has(self, name: str) -> bool:
        return self.names is None or name in self.names or name.rsplit("/", 1)[-1] in self.names

    def files(self, pattern: str) -> Iterator[Path]:
        """Files below the folder in the order of their names, hidden ones left out."""
        for path in sorted(self.folder.rglob(pattern)):
            if not any(part.startswith(".") for part in path.relative_to(self.folder).parts):
                yield path

    def name_of(self, path: Path, ending: str) -> str:
        """Name of a recording: its path in the folder without ENDING."""
        name = path.relative_to(self.folder).as_posix()
        return name[: len(name) - len(ending)]


def select(root: Path, split: str) -> Selection:
    """SPLIT is train, val or test, or `all`. A root without such subfolders and without splits.json is split by hash, 8 : 1 : 1."""
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected the folder of a data set")
    if split == "all":
        return Selection(root / "all" if (root / "all").is_dir() else root, split)  # `prepare` writes a folder all
    if split not in FOLDERS:
        raise InputError(f"{root}: unknown split {split!r}; expected train, val, test, or all")
    there = {own: root / name for own, names in FOLDERS.items() for name in names if (root / name).is_dir()}
    if split in there:
        return Selection(there[split], split)
    if there:
        raise InputError(f"{root}: has no folder for the split {split!r}, only {', '.join(sorted(path.name for path in there.values()))}")
    own = next((own for own, names in FOLDERS.items() if root.name in names), None)
    if own == split:
        return Selection(root, split)
    if own is not None:
        raise InputError(f"{root}: is the folder of the split {own!r}, but {split!r} was asked for; give the folder above it")
    if (root / "splits.json").is_file():
        return Selection(root, split, _listed(root / "splits.json", split))
    return Selection(root, split, by_hash=True)


def splits_in(root: Path) -> list[str]:
    """The splits that a folder has, as subfolders, as itself or in a splits.json; none: it is split by hash."""
    found = [split for split, names in FOLDERS.items() if any((root / name).is_dir() for name in names) or root.name in names]
    listed = root / "splits.json"
    return found or ([split for split in FOLDERS if _lists(listed).get(split)] if listed.is_file() else [])


def shared_out(names: Iterable[str]) -> dict[str, str]:
    """The split of each by its hash. Two are enough to train: where train or val would be empty, they get one of the others."""
    found = {name: split_of(name) for name in sorted(names, key=fraction_of)}
    if len(found) > 1 and "train" not in found.values():
        found[next(iter(found))] = "train"
    if len(found) > 1 and "val" not in found.values():
        training = [name for name, split in found.items() if split == "train"]
        found[training[-1] if len(training) > 1 else next(name for name, split in found.items() if split == "test")] = "val"
    return found


def fraction_of(name: str) -> float:
    return int.from_bytes(sha256(os.fsencode(name)).digest()[:8], "big") / 2**64


def split_of(name: str) -> str:
    """The same for a name in every run and on every machine, so that test recordings never move into training when others are added."""
    fraction = fraction_of(name)
    return next(split for split, share in SHARES if fraction < share)


def _lists(path: Path) -> dict[str, list[str]]:
    try:
        lists = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); {LISTED}") from error
    if not isinstance(lists, dict) or not all(
        isinstance(names, list) and all(isinstance(n, str) for n in names) for names in lists.values()
    ):
        raise InputError(f"{path}: {LISTED}")
    return lists


def _listed(path: Path, split: str) -> frozenset[str]:
    lists = _lists(path)
    if split not in lists:
        raise InputError(f"{path}: has no split {split!r}, only {', '.join(lists)}; {LISTED}")
    others = {name: other for other, names in lists.items() if other != split for name in names}
    both = sorted(set(lists[split]) & others.keys())
    if both:
        raise InputError(f"{path}: {both[0]!r} is in {split!r} and in {others[both[0]]!r}; each recording may be in one split")
    return frozenset(check_name(name, path) for name in lists[split])
