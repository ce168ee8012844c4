"""Canvas: sides that the attention divides, every pixel in its place, boxes that come back to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.representation.canvas import Canvas
from saccade.types import InputError

CANVASES = [
    Canvas.pad(304, 240),
    Canvas.half(1280, 720),
    Canvas.half(1280, 720, "published"),
    Canvas.scale_to(640, 480, (320, 256)),
    Canvas.scale_to(346, 260, (320, 256)),
    Canvas.scale_to(128, 128, (320, 256)),
]


def test_sizes_of_the_published_models():
    assert (Canvas.pad(304, 240).height, Canvas.pad(304, 240).width) == (256, 320)
    assert (Canvas.half(1280, 720).height, Canvas.half(1280, 720).width) == (384, 640)
    assert (Canvas.pad(304, 240, (64, 96)).height, Canvas.pad(304, 240, (64, 96)).width) == (256, 384)


@pytest.mark.parametrize("canvas", CANVASES)
def test_pixels_go_where_boxes_go(canvas):
    for table, side in ((canvas.columns, canvas.width), (canvas.rows, canvas.height)):
        kept = np.flatnonzero(table >= 0)
        assert np.array_equal(table[kept], np.floor(kept * canvas.scale))
        assert table[kept].min() >= 0
        assert table.max() < side


def test_published_half_keeps_odd_pixels():
    canvas = Canvas.half(6, 4, "published", 1)
    assert canvas.columns.tolist() == [-1, 0, -1, 1, -1, 2]
    assert canvas.rows.tolist() == [-1, 0, -1, 1]


def test_scaling_keeps_the_shape_and_never_enlarges():
    canvas = Canvas.scale_to(640, 480, (320, 256))
    assert (canvas.scale, canvas.width, canvas.height) == (0.5, 320, 256)
    assert Canvas.scale_to(128, 128, (320, 256)).scale == 1.0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.floats(-5_000, 5_000, width=32), min_size=4, max_size=4), max_size=5),
    st.tuples(st.integers(1, 2_000), st.integers(1, 2_000)),
    st.tuples(st.integers(64, 2_000), st.integers(64, 2_000)),
)
def test_boxes_come_back_to_the_bit(boxes, sensor, to):
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    for canvas in (Canvas.scale_to(*sensor, to), Canvas.half(*sensor), Canvas.pad(*sensor)):
        assert np.array_equal(canvas.to_sensor(canvas.to_canvas(boxes)), boxes)
        assert canvas.width % 32 == canvas.height % 32 == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Canvas.pad(0, 240),
        lambda: Canvas.pad(304, 240, 0),
        lambda: Canvas.pad(304, 1 << 20),
        lambda: Canvas.scale_to(304, 240, (0, 10)),
        lambda: Canvas.scaled(304, 240, 1.5),
        lambda: Canvas.scaled(304, 240, 0.3),
        lambda: Canvas(np.array([0, 5], np.int32), np.array([0], np.int32), 5, 1),
        lambda: Canvas(np.array([], np.int32), np.array([0], np.int32), 5, 1),
    ],
)
def test_nonsense(make):
    with pytest.raises(InputError, match="Canvas"):
        make()
