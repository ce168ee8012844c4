"""Windows at any place: those of the grid are the frames of the grid, others the histogram of their events."""

from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.datasets.recording import Sampling
from saccade.representation.histogram import stacked_histogram
from saccade.types import InputError
from tests.datasets.make import gen1_folder, labels_every, records, rvt_sequence
from tests.make.events import random_events

SAMPLINGS = [
    Sampling(),
    Sampling(rate_hz=200, bins=5),
    Sampling(rate_hz=40, kind="disjoint", bins=4),
    Sampling(histogram="published"),
    Sampling(rate_hz=60, histogram="published"),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_on_the_grid_they_are_its_frames(tmp_path: Path, sampling: Sampling) -> None:
    one = open_dataset(gen1_folder(tmp_path)).recordings[0]
    ends_us = one.ends_us(sampling)[3:15]
    starts_us = ends_us - sampling.window_us if sampling.kind == "sliding" else one.ends_us(sampling)[2:14]
    frames = one.frames(ends_us, sampling)
    assert frames.any()
    np.testing.assert_array_equal(one.windows(starts_us, ends_us, sampling), frames)
    shuffled = np.random.default_rng(0).permutation(len(ends_us))
    np.testing.assert_array_equal(one.windows(starts_us[shuffled], ends_us[shuffled], sampling), frames[shuffled])


@pytest.mark.parametrize("mode", ["exact", "published"])
def test_anywhere_they_are_histograms_of_their_events(tmp_path: Path, mode: str) -> None:
    one = open_dataset(gen1_folder(tmp_path)).recordings[0]
    events = random_events(6000, span_us=2_000_000, seed=0)
    random = np.random.default_rng(0)
    starts_us = np.sort(random.integers(-100_000, 2_100_000, 30))
    ends_us = starts_us + random.integers(10, 300_000, 30)
    frames = one.windows(starts_us, ends_us, Sampling(histogram=mode))  # type: ignore[arg-type]
    for frame, start_us, end_us in zip(frames, starts_us.tolist(), ends_us.tolist(), strict=True):
        part = events[(events.t >= start_us) & (events.t < end_us)]
        window = saccade.Window(part.t, part.x, part.y, part.p, 304, 240, start_us, end_us)
        np.testing.assert_array_equal(frame, stacked_histogram(window, mode=mode))  # type: ignore[arg-type]
    assert one.windows(starts_us[:0], ends_us[:0], Sampling()).shape == (0, 20, 240, 304)


def test_stored_frames_have_no_others(tmp_path: Path) -> None:
    whole = open_dataset(gen1_folder(tmp_path / "raw", ("a",)))
    prepare(whole, tmp_path / "prepared", Sampling(), processes=1)
    ends_us = np.arange(1, 41) * 50_000
    rvt_sequence(tmp_path / "rvt/train/a", records(labels_every(250_000, 5)), ends_us, size=(304, 240))
    for folder, mend in (("prepared", "prepare --what events"), ("rvt", "raw recordings")):
        one = open_dataset(tmp_path / folder).recordings[0]
        np.testing.assert_array_equal(one.instants_us, whole.recordings[0].instants_us)
        with pytest.raises(InputError, match=mend):
            one.windows(ends_us - 5000, ends_us, Sampling())
