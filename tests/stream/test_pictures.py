"""The picture beside an answer is the last 50 ms of the sensor, whatever the network sees of them, and costs no second counting of all."""

from typing import Any

import numpy as np
import pytest

from saccade.representation.canvas import Canvas
from saccade.representation.histogram import stacked_histogram
from saccade.stream.stream import Stream
from saccade.stream.tiles import Tiled
from saccade.types import Events, InputError, Window
from tests.stream.streams import HEIGHT, WIDTH, Idle, events, portions

FITS: dict[str, dict[str, Any]] = {
    "padded": {},
    "scaled": {"canvas": Canvas.scale_to(WIDTH, HEIGHT, (32, 32))},
    "disjoint": {"window": "disjoint"},
    "interleaved": {"stepping": "interleaved"},
}


def expected(whole: Events, end_us: int) -> np.ndarray:
    part = whole.between(end_us - 50_000, end_us)
    return stacked_histogram(Window(part.t, part.x, part.y, part.p, part.width, part.height, end_us - 50_000, end_us))


@pytest.mark.parametrize("rate_hz", [20, 30, 200])
@pytest.mark.parametrize("options", FITS.values(), ids=list(FITS))
def test_a_picture_is_the_last_window_of_the_sensor(options: dict[str, Any], rate_hz: float) -> None:
    whole = events(3000, span_us=300_000)
    stream, seen = Stream(Idle(), rate_hz, pictures=True, **options), 0
    for found in stream.run(portions(whole, 20)):
        np.testing.assert_array_equal(stream.picture(), expected(whole, found.time_us))
        seen += 1
        if seen == 3:
            stream.rate_hz = 100
    assert seen > 5


def test_tiles_have_one_picture() -> None:
    whole, seen = events(3000, span_us=300_000, width=128, height=64), 0
    tiled = Tiled(Idle(), 100, 128, 64, (64, 32), pictures=True)
    assert len(tiled.tiles) > 1
    for found in tiled.run(portions(whole, 20)):
        np.testing.assert_array_equal(tiled.picture(), expected(whole, found.time_us))
        seen += 1
    assert seen > 20


def test_a_stream_counts_each_event_once_at_200_hz_and_so_it_does_after_a_change_of_rate() -> None:
    stream = Stream(Idle(), 200, pictures=True)
    stream.push(events(2000, span_us=200_000))
    assert len(stream.engine(WIDTH, HEIGHT).frames.rings) == 1
    assert stream.engine(WIDTH, HEIGHT).pictures is None  # the network's frame serves
    stream.rate_hz = 100
    stream.push(events(2000, start_us=200_000, span_us=200_000))
    assert len(stream.engine(WIDTH, HEIGHT).frames.rings) == 1


def test_without_being_asked_for_there_is_no_picture() -> None:
    stream = Stream(Idle(), 200)
    stream.push(events(2000, span_us=200_000))
    with pytest.raises(InputError, match="pictures=True"):
        stream.picture()
    with pytest.raises(InputError, match="pictures=True"):
        Tiled(Idle(), 100, 128, 64, (64, 32)).picture()
