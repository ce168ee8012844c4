"""What the page shows of the events: the newest of every pixel, by its age, whatever the sensor's size."""

import numpy as np
import pytest

from saccade.live.surface import MOST_SHOWN, Surface
from saccade.types import Events
from tests.stream.streams import events


def test_every_pixel_shows_its_newest_event() -> None:
    whole, span_us = events(3000, span_us=100_000), 50_000
    surface, now_us = Surface(whole.width, whole.height), int(whole.t[-1])
    surface.add(whole[:1000])
    surface.add(whole[1000:])
    expected = np.zeros((whole.height, whole.width), np.uint8)
    for t, x, y, p in zip(whole.t.tolist(), whole.x, whole.y, whole.p, strict=True):
        if now_us - t < span_us:
            expected[y, x] = 1 + min(126, 126 * (span_us - (now_us - t)) // span_us) + 128 * p
    np.testing.assert_array_equal(surface.shades(now_us, span_us), expected)
    assert expected.any()
    assert not surface.shades(now_us + span_us + 1, span_us).any(), "what is old fades"
    surface.clear()
    assert not surface.shades(now_us, span_us).any()


@pytest.mark.parametrize("size", [(640, 480), (1280, 720), (1281, 1023)])
def test_large_sensors_are_shown_smaller_and_no_event_is_hidden(size: tuple[int, int]) -> None:
    some = events(50, width=size[0], height=size[1], span_us=1000)
    surface = Surface(*size)
    surface.add(some)
    shades = surface.shades(1000, 50_000)
    assert shades.size <= MOST_SHOWN
    assert all(shades[y // surface.factor, x // surface.factor] for x, y in zip(some.x, some.y, strict=True))


def test_events_outside_the_sensor_are_left_out() -> None:
    surface = Surface(4, 4)
    columns = (np.array([4, 1, 65535], np.uint16), np.array([1, 4, 65535], np.uint16))
    surface.add(Events(np.zeros(3, np.int64), *columns, np.ones(3, np.bool_), 4, 4))
    assert not surface.shades(0, 1000).any()
