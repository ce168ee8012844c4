"""A labelled recording is what has its members, whoever wrote the class; what it can't do it says."""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from saccade.config import presets
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.datasets.recording import LabelledRecording, Sampling, content_of
from saccade.types import InputError
from tests.datasets.make import gen1_folder, labels_every, records, rvt_sequence
from tests.make.recordings import PaintedRecording, painted

SMALL = Sampling(bins=2)


@dataclass(frozen=True, eq=False)
class InFolder(PaintedRecording):
    """A user's recording that says where its frames come from."""

    path: str = ""


@pytest.fixture
def kinds(tmp_path: Path) -> dict[str, LabelledRecording]:
    raw = open_dataset(gen1_folder(tmp_path / "raw", ("a",)))
    prepare(raw, tmp_path / "frames", SMALL, processes=1)
    prepare(raw, tmp_path / "events", what="events", processes=1)
    rvt_sequence(tmp_path / "rvt/train/a", records(labels_every(250_000, 3)), np.arange(50_000, 1_300_000, 50_000), size=(304, 240))
    opened = {name: open_dataset(tmp_path / name).recordings[0] for name in ("raw", "frames", "events", "rvt")}
    return {**opened, "by structure": painted("painted", 20)}


def test_every_kind_has_all_members_and_says_which_sampling_it_serves(kinds: dict[str, LabelledRecording]) -> None:
    for name, one in kinds.items():
        assert isinstance(one, LabelledRecording), name
        assert one.halve == "no"
        np.testing.assert_array_equal(one.instants_us, one.truth.instants_us)
        np.testing.assert_array_equal(one.labels.t, one.truth.labels.t)
    assert kinds["raw"].fixed_sampling is kinds["events"].fixed_sampling is None
    assert kinds["frames"].fixed_sampling == SMALL
    assert kinds["rvt"].fixed_sampling == Sampling(histogram="published")


def test_asking_what_it_is_opens_no_file(tmp_path: Path) -> None:
    root = gen1_folder(tmp_path)
    one = open_dataset(root).recordings[0]
    for path in (root / "train").iterdir():
        path.unlink()
    assert isinstance(one, LabelledRecording)
    assert not isinstance(object(), LabelledRecording)


def test_content_is_that_of_the_files(kinds: dict[str, LabelledRecording], tmp_path: Path) -> None:
    """Equal bytes are equal content, any other byte is other content; who names no file has none."""
    assert content_of(kinds["by structure"]) == ""
    frame_file = next((tmp_path / "rvt").rglob("event_representations*.h5"))
    for name, path in {"raw": kinds["raw"].path, "frames": kinds["frames"].path, "events": kinds["events"].path, "rvt": frame_file}.items():
        before = content_of(kinds[name])
        data = path.read_bytes()
        path.write_bytes(data)
        assert content_of(kinds[name]) == before != ""
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert content_of(kinds[name]) != before
    folder = InFolder(**vars(kinds["by structure"]), path=str(tmp_path / "own"))
    assert content_of(folder) == ""
    (tmp_path / "own/deep").mkdir(parents=True)
    (tmp_path / "own/deep/1.npy").write_bytes(b"1")
    before = content_of(folder)
    (tmp_path / "own/deep/2.npy").write_bytes(b"2")
    assert content_of(folder) != before


def test_only_events_can_be_counted(kinds: dict[str, LabelledRecording]) -> None:
    ends_us = kinds["raw"].ends_us(SMALL)
    counts, pixels = kinds["raw"].event_counts(0, ends_us)
    assert (counts.sum(), pixels) == (6000, 304 * 240)
    for name in ("frames", "rvt"):
        with pytest.raises(InputError, match="holds frames and no events"):
            kinds[name].event_counts(0, ends_us)


def test_what_was_read_is_not_pickled(kinds: dict[str, LabelledRecording]) -> None:
    for name in ("raw", "frames", "events", "rvt"):
        before = len(pickle.dumps(kinds[name]))
        assert len(kinds[name].labels)
        assert kinds[name].width == 304
        assert len(pickle.dumps(kinds[name])) == before, name


def test_a_preparation_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its settings have no clip: that of all frames was 10."""
    raw = open_dataset(gen1_folder(tmp_path / "raw", ("a", "b")))
    prepare(raw, tmp_path / "out", SMALL, processes=1)
    path = tmp_path / "out/train/prepared.json"
    settings = json.loads(path.read_text())
    assert settings["sampling"].pop("clip") == 10
    path.write_text(json.dumps(settings))
    (tmp_path / "out/train/b.h5").unlink()
    prepare(raw, tmp_path / "out", SMALL, processes=1)
    assert len(open_dataset(tmp_path / "out").recordings) == 2
    with pytest.raises(InputError, match=r"other settings \(sampling.clip: there 10, here 5\)"):
        prepare(raw, tmp_path / "out", Sampling(bins=2, clip=5), processes=1)


def test_the_sampling_of_a_detector_is_one_window_after_the_other() -> None:
    config = presets["s5-vit-nano"]()
    assert Sampling.of(config) == Sampling(rate_hz=20, window_us=50_000, bins=10, clip=10)
    for clip in (0, 256):
        with pytest.raises(InputError, match="clip"):
            Sampling(clip=clip)


def test_counts_end_at_the_clip_of_the_sampling(tmp_path: Path) -> None:
    one = open_dataset(gen1_folder(tmp_path, ("a",))).recordings[0]
    ends_us = one.ends_us(SMALL)[10:14]
    wide, narrow = Sampling(bins=1, window_us=1_000_000, clip=200), Sampling(bins=1, window_us=1_000_000, clip=1)
    assert one.frames(ends_us, wide).max() > 1
    for frames in (one.frames(ends_us, narrow), one.windows(ends_us - 1_000_000, ends_us, narrow)):
        np.testing.assert_array_equal(frames, np.minimum(one.frames(ends_us, wide), 1))
