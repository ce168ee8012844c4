"""Which recordings a split has where nobody said so: two are enough to train, and what there is is scored."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import saccade
from saccade.datasets.open import open_dataset, open_to_score, open_to_validate
from saccade.datasets.splits import shared_out, split_of
from tests.datasets.make import recording, some_events
from tests.training.make import tiny_settings, weights_file

LABELS = "t_us,x,y,w,h,class\n" + "".join(f"{t},4,4,20,20,bright\n" for t in range(100_000, 1_000_000, 50_000))


def own(folder: Path, *names: str) -> Path:
    for name in names:
        recording(folder / f"{name}.h5", some_events(seed=len(name)))
        (folder / f"{name}.csv").write_text(LABELS)
    return folder


@given(names=st.sets(st.text("abcdefgh0123456789", min_size=1, max_size=8), min_size=2, max_size=60))
def test_two_recordings_are_enough(names: set[str]) -> None:
    """Train and val have one each; where they have by the hash alone, nothing else decides."""
    shares = shared_out(names)
    assert shares.keys() == names
    assert {"train", "val"} <= set(shares.values())
    by_hash = {name: split_of(name) for name in names}
    if {"train", "val"} <= set(by_hash.values()):
        assert shares == by_hash
    assert sum(shares[name] != by_hash[name] for name in names) <= 2
    assert shared_out(sorted(names, reverse=True)) == shares


def test_splits_of_a_folder_share_no_recording(tmp_path: Path) -> None:
    root = own(tmp_path, "a", "bb")
    train, val = ({one.name for one in open_dataset(root, split).recordings} for split in ("train", "val"))
    assert (len(train), len(val)) == (1, 1)
    assert train != val


@pytest.mark.parametrize(
    ("names", "split"),
    [(("test/a", "train/b"), "test"), (("train/a", "validation/b"), "val"), (("train/a",), "train"), (("a", "bb"), "val")],
)
def test_what_there_is_is_scored_and_said(tmp_path: Path, names: tuple[str, ...], split: str, caplog: pytest.LogCaptureFixture) -> None:
    root = own(tmp_path, *names)
    with caplog.at_level(logging.WARNING, "saccade"):
        assert open_to_score(root).split == split
    told = [record.getMessage() for record in caplog.records]
    assert told == ([] if split == "test" else [f"{root}: has no split test, so {split} is scored; --split chooses"])
    assert open_to_score(root, "train").split == "train"


def test_two_recordings_train(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a folder of their own, with one of them as validation; or in train alone, without any, which is said."""
    settings = tiny_settings(model=str(weights_file(tmp_path)), steps=1, batch=2, length=2)
    scores = saccade.train(own(tmp_path / "flat", "a", "bb"), tmp_path / "run", settings)
    assert scores is not None
    assert scores.frames > 0
    with caplog.at_level(logging.WARNING, "saccade"):
        assert open_to_validate(own(tmp_path / "split", "train/a", "train/b")) is None
    assert "has no split val, only train" in caplog.text
    assert saccade.train(tmp_path / "split", tmp_path / "run2", settings) is None
    assert (tmp_path / "run2/final.safetensors").exists()
