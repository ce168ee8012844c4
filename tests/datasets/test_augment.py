"""Augmentation: boxes follow pixels, nothing is identity but nothing, and the published ranges."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.datasets.augment import (
    LEAST_SHARE,
    NO_AUGMENTATION,
    Augmentation,
    AugmentSettings,
    augment_frames,
    augment_labels,
    draw,
)
from saccade.types import InputError, Labels

WIDTH, HEIGHT = 64, 48


def labels_of(*boxes: tuple[float, float, float, float]) -> Labels:
    n = len(boxes)
    return Labels(np.zeros(n, np.int64), np.array(boxes, np.float32).reshape(n, 4), np.arange(n), np.arange(n))


def random_frames(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 11, (3, 4, HEIGHT, WIDTH)).astype(np.uint8)


def draws(lane: str, count: int, boxes=(), settings: AugmentSettings | None = None) -> list[Augmentation]:
    random = np.random.default_rng(0)
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    return [draw(random, settings or AugmentSettings(), lane, WIDTH, HEIGHT, boxes) for _ in range(count)]


@st.composite
def augmentations(draw_) -> Augmentation:
    """As they are drawn: zooming in stays within the picture, zooming out around it."""
    zoom = draw_(st.floats(1 / 1.2, 1.5))
    x, y = (draw_(st.floats(0, 1)) * (side - side / zoom) for side in (WIDTH, HEIGHT))
    return Augmentation(draw_(st.booleans()), zoom, x, y)


@given(augmentations(), st.integers(0, WIDTH - 8), st.integers(0, HEIGHT - 8), st.integers(6, WIDTH), st.integers(6, HEIGHT))
def test_boxes_follow_pixels(augmentation, left, top, width, height) -> None:
    right, bottom = min(left + width, WIDTH), min(top + height, HEIGHT)
    frames = np.zeros((1, 1, HEIGHT, WIDTH), np.uint8)
    frames[..., top:bottom, left:right] = 1
    rows, columns = np.nonzero(augment_frames(frames, augmentation)[0, 0])
    labels, vanished = augment_labels(labels_of((left, top, right, bottom)), augmentation, WIDTH, HEIGHT)
    assert len(labels) + vanished == 1
    if vanished:
        return
    painted = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if len(rows) else labels.boxes[0].round()
    assert np.abs(labels.boxes[0] - painted).max() <= 1
    assert (labels.boxes[0] >= 0).all()
    assert (labels.boxes[0] <= [WIDTH, HEIGHT, WIDTH, HEIGHT]).all()


def test_nothing_changes_nothing() -> None:
    frames, labels = random_frames(), labels_of((1, 2, 30, 40))
    assert augment_frames(frames, Augmentation()) is frames
    assert augment_labels(labels, Augmentation(), WIDTH, HEIGHT) == (labels, 0)
    assert set(draws("random", 100, settings=NO_AUGMENTATION) + draws("ordered", 100, settings=NO_AUGMENTATION)) == {Augmentation()}


def test_flip_twice_is_identity() -> None:
    flip, frames, labels = Augmentation(flip=True), random_frames(), labels_of((1, 2, 30, 40), (0, 0, 64, 48))
    once = augment_frames(frames, flip)
    np.testing.assert_array_equal(once, frames[..., ::-1])
    np.testing.assert_array_equal(augment_frames(once, flip), frames)
    there, _ = augment_labels(labels, flip, WIDTH, HEIGHT)
    back, vanished = augment_labels(there, flip, WIDTH, HEIGHT)
    np.testing.assert_array_equal(back.boxes, labels.boxes)
    assert not vanished


def test_zoom_takes_the_nearest_pixel() -> None:
    """Counts stay counts; against numpy, pixel by pixel."""
    frames = random_frames()
    for augmentation in (Augmentation(False, 1.37, 3.2, 5.9), Augmentation(True, 1 / 1.13, -4.1, -2.2), Augmentation(True, 1.0, 0.0, 0.0)):
        expected = np.zeros_like(frames)
        mirrored = frames[..., ::-1] if augmentation.flip else frames
        for i in range(HEIGHT):
            for j in range(WIDTH):
                row, column = (int(np.floor((k + 0.5) / augmentation.zoom + o)) for k, o in ((i, augmentation.y), (j, augmentation.x)))
                if 0 <= row < HEIGHT and 0 <= column < WIDTH:
                    expected[..., i, j] = mirrored[..., row, column]
        np.testing.assert_array_equal(augment_frames(frames, augmentation), expected)


def test_arguments_stay_as_they_are() -> None:
    frames, labels = random_frames(), labels_of((1, 2, 30, 40))
    before, box = frames.copy(), labels.boxes.copy()
    augment_frames(frames, Augmentation(True, 1.3, 2.0, 3.0))
    augment_labels(labels, Augmentation(True, 1.3, 2.0, 3.0), WIDTH, HEIGHT)
    np.testing.assert_array_equal(frames, before)
    np.testing.assert_array_equal(labels.boxes, box)


def test_published_ranges_of_random_clips() -> None:
    found = draws("random", 4000)
    zoomed_in, zoomed_out = ([a for a in found if sign * (a.zoom - 1) > 0] for sign in (1, -1))
    assert np.mean([a.flip for a in found]) == pytest.approx(0.5, abs=0.03)
    assert len(zoomed_in) / 4000 == pytest.approx(0.64, abs=0.03)
    assert len(zoomed_out) / 4000 == pytest.approx(0.16, abs=0.03)
    assert 1.49 < max(a.zoom for a in zoomed_in) <= 1.5
    assert 1 / 1.2 <= min(a.zoom for a in zoomed_out) < 1 / 1.19


def test_published_ranges_of_played_recordings() -> None:
    found = draws("ordered", 4000)
    assert max(a.zoom for a in found) == 1.0
    assert np.mean([a.zoom < 1 for a in found]) == pytest.approx(0.5, abs=0.03)
    assert 1 / 1.2 <= min(a.zoom for a in found) < 1 / 1.19


@given(st.floats(0, 50), st.floats(0, 40), st.floats(1, 64), st.floats(1, 48), st.integers(0, 1 << 30))
def test_zooming_in_keeps_a_box_in_sight(left, top, width, height, seed) -> None:
    labels = labels_of((left, top, min(left + width, WIDTH), min(top + height, HEIGHT)))
    settings = AugmentSettings(zoom=1.0, zoom_in=1.0)
    picture = draw(np.random.default_rng(seed), settings, "random", WIDTH, HEIGHT, labels.boxes)
    assert picture.zoom >= 1
    assert -1e-6 <= picture.x <= WIDTH - WIDTH / picture.zoom + 1e-6
    assert not augment_labels(labels, picture, WIDTH, HEIGHT)[1]


def test_zooming_out_keeps_every_box_whole() -> None:
    labels = labels_of((0, 0, 64, 48), (10, 10, 14, 14))
    for picture in draws("ordered", 200):
        kept, vanished = augment_labels(labels, picture, WIDTH, HEIGHT)
        sides = kept.boxes[:, 2:] - kept.boxes[:, :2]
        np.testing.assert_allclose(sides, picture.zoom * np.array([[64, 48], [4, 4]]), rtol=1e-4)
        assert not vanished


def test_what_vanishes_is_counted_and_the_rest_keeps_its_columns() -> None:
    """Zoom 2 on the right lower quarter: the first box is outside, of the second a tenth is just too little, the third stays."""
    picture = Augmentation(False, 2.0, 32.0, 24.0)
    labels = labels_of((0, 0, 10, 10), (23, 30, 33, 40), (28, 30, 36, 40), (40, 30, 60, 40))
    labels = replace(labels, visible=np.array([1, 1, 0.5, 1], np.float32))
    kept, vanished = augment_labels(labels, picture, WIDTH, HEIGHT)
    assert LEAST_SHARE == 0.1
    assert (vanished, kept.classes.tolist(), kept.tracks.tolist()) == (2, [2, 3], [2, 3])
    np.testing.assert_allclose(kept.visible, [0.25, 1.0])
    np.testing.assert_allclose(kept.boxes, [[0, 12, 8, 32], [16, 12, 56, 32]])


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match=r"augment\.largest_in=0\.5 must be from 1 to 8"):
        AugmentSettings(largest_in=0.5)
    with pytest.raises(InputError, match=r"augment\.flip=1\.5"):
        AugmentSettings(flip=1.5)


def test_polarities_are_exchanged_and_boxes_stay() -> None:
    frames, labels, swap = random_frames(), labels_of((1, 2, 30, 40)), Augmentation(swap=True)
    once = augment_frames(frames, swap)
    np.testing.assert_array_equal(once[:, :2], frames[:, 2:])  # two bins of each polarity
    np.testing.assert_array_equal(augment_frames(once, swap), frames)
    assert augment_labels(labels, swap, WIDTH, HEIGHT) == (labels, 0)


def test_thinning_keeps_its_share_of_the_events() -> None:
    frames, thin = random_frames(), Augmentation(keep=0.5, seed=3)
    before = frames.copy()
    thinned = augment_frames(frames, thin)
    np.testing.assert_array_equal(frames, before)
    assert (thinned <= frames).all()
    assert 0.48 < thinned.sum() / frames.sum() < 0.52
    np.testing.assert_array_equal(augment_frames(frames, thin), thinned)
    assert (augment_frames(frames, thin, first=3) != thinned).any()


def test_exchanging_and_thinning_leave_flips_and_zooms_as_they_were() -> None:
    """Drawn after the others, from the same generator: every single picture is that of the published settings."""
    boxes = np.zeros((0, 4), np.float32)
    more = replace(AugmentSettings(), swap=0.5, thin=0.5)
    drawn = [draw(np.random.default_rng(seed), more, "random", WIDTH, HEIGHT, boxes) for seed in range(400)]
    plain = [draw(np.random.default_rng(seed), AugmentSettings(), "random", WIDTH, HEIGHT, boxes) for seed in range(400)]
    assert [replace(one, swap=False, keep=1.0, seed=0) for one in drawn] == plain
    assert 0.4 < np.mean([one.swap for one in drawn]) < 0.6
    kept = np.array([one.keep for one in drawn])
    assert 0.4 < (kept < 1).mean() < 0.6
    assert 0.4 <= kept.min() < 0.45
