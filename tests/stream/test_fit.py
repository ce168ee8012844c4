"""Any sensor size: what the canvas is, that boxes come back, and that tiles see the sensor as one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.config import s5_vit_nano
from saccade.detection.decode import Decoding
from saccade.export.runtime import TorchRuntime
from saccade.model.detector import Detector
from saccade.stream.fit import GEN1_SIZE, ONE_MPX_SIZE, canvas_for
from saccade.stream.tiles import OVERLAP, Tiled, open_stream, tiles_of
from saccade.types import Detections, Events, InputError
from tests.make.events import random_events

side = st.integers(1, 2000)
GEN1 = s5_vit_nano()
ONE_MPX = replace(GEN1, halved="published")


@pytest.fixture(scope="module")
def runtime() -> TorchRuntime:
    torch.manual_seed(0)
    return TorchRuntime(Detector(GEN1).eval())


@pytest.mark.parametrize(
    ("config", "sensor", "scale"),
    [
        (GEN1, (304, 240), 1),  # its own
        (GEN1, (346, 260), 1),
        (GEN1, (160, 128), 1),  # never enlarged
        (GEN1, (640, 480), (304 * 240 / 640 / 480) ** 0.5),  # as many pixels as there, in the shape of the sensor
        (GEN1, (1280, 720), (304 * 240 / 1280 / 720) ** 0.5),
        (ONE_MPX, (1280, 720), 0.5),  # its own
        (ONE_MPX, (304, 240), 1),  # halved as in training, objects would be tiny
        (ONE_MPX, (640, 480), 1),  # 1.15 times as large as the halved 1 Mpx
        (ONE_MPX, (800, 600), 0.5),
    ],
)
def test_auto_keeps_objects_near_the_size_that_was_trained(config, sensor: tuple[int, int], scale: float) -> None:
    assert canvas_for(config, *sensor).scale == pytest.approx(scale, abs=1e-3)


@given(width=side, height=side, fit=st.sampled_from(["auto", "pad", "scale"]), halved=st.booleans())
def test_every_sensor_fits_and_boxes_come_back(width: int, height: int, fit, halved: bool) -> None:
    config = ONE_MPX if halved else GEN1
    canvas = canvas_for(config, width, height, fit)
    assert canvas.width % config.backbone.multiple == canvas.height % config.backbone.multiple == 0
    assert (canvas.sensor_width, canvas.sensor_height) == (width, height)
    corners = np.array([[0, 0, width, height], [0, 0, 1, 1]], np.float64)
    np.testing.assert_array_equal(canvas.to_sensor(canvas.to_canvas(corners)), corners)
    if fit == "scale":
        shown, known = width * height * canvas.scale**2, ONE_MPX_SIZE if halved else GEN1_SIZE
        assert shown <= min(width * height, known[0] * known[1] + width + height)


@given(width=side, height=side, fit=st.sampled_from(["auto", "scale"]), halved=st.booleans())
def test_a_graph_of_one_size_gets_that_size(width: int, height: int, fit, halved: bool) -> None:
    canvas = canvas_for(ONE_MPX if halved else GEN1, width, height, fit, fixed=(320, 256))
    assert (canvas.width, canvas.height) == (320, 256)
    corners = np.array([[0, 0, width, height]], np.float64)
    assert (canvas.to_canvas(corners)[0, 2:] <= (320, 256)).all()
    np.testing.assert_array_equal(canvas.to_sensor(canvas.to_canvas(corners)), corners)


def test_what_does_not_fit_is_not_padded() -> None:
    with pytest.raises(InputError, match="--size 346x260"):
        canvas_for(GEN1, 346, 260, "pad", fixed=(320, 256))


@given(width=side, height=side, tile=st.tuples(st.integers(32, 400), st.integers(32, 400)))
def test_every_pixel_is_in_one_tile_of_its_own(width: int, height: int, tile: tuple[int, int]) -> None:
    """And far from that tile's border, unless the sensor ends there: objects that are small enough are whole in their tile."""
    tiles = tiles_of(width, height, tile)
    random = np.random.default_rng(0)
    for x, y in zip(random.uniform(0, width, 20), random.uniform(0, height, 20), strict=True):
        (home,) = [one for one in tiles if one.own[0] <= x < one.own[2] and one.own[1] <= y < one.own[3]]
        assert home.left <= x <= home.right
        assert home.top <= y <= home.bottom
        for low, high, at, end in ((home.left, home.right, x, width), (home.top, home.bottom, y, height)):
            margin = (high - low) * OVERLAP / 2 - 1
            assert low == 0 or at - low >= margin
            assert high == end or high - at >= margin


def same(a: list[Detections], b: list[Detections]) -> None:
    assert [one.time_us for one in a] == [one.time_us for one in b]
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one.boxes, other.boxes, atol=1e-4)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-6)


def test_one_tile_is_a_stream(runtime: TorchRuntime) -> None:
    events = random_events(3000, width=64, height=48, start_us=1000)
    options = {"decoding": Decoding(threshold=0.0, maximum=20)}
    whole = list(open_stream(runtime, 100, 64, 48, "pad", **options).run(events))
    tiled = Tiled(runtime, 100, 64, 48, (64, 48), **options)
    assert len(tiled.tiles) == 1
    assert len(whole) > 2
    same(list(tiled.run(events)), whole)


def test_portions_change_nothing(runtime: TorchRuntime) -> None:
    """A tile whose events end early answers up to the same windows as the others."""
    events = random_events(4000, width=120, height=40, start_us=1000)
    middle = int(np.median(events.t))
    events = events[(events.x < 60) | (events.t < middle)]
    options = {"decoding": Decoding(threshold=0.0, maximum=20)}

    def run(portion: int) -> list[Detections]:
        tiled = Tiled(runtime, 100, 120, 40, (64, 40), tracker=True, **options)
        assert len(tiled.tiles) == 3
        return list(tiled.run(events[i : i + portion] for i in range(0, len(events), portion)))

    whole, pieces = run(len(events)), run(170)
    times = [one.time_us for one in whole]
    assert times == list(range(times[0], times[-1] + 1, 10_000))
    same(pieces, whole)
    assert any(one.boxes[:, 0].max() > 64 for one in whole)  # boxes are on the sensor


def test_scaled_counts_are_those_of_the_sensor() -> None:
    """Every event of the sensor is counted on the canvas: scaling loses none."""
    from saccade.representation.histogram import stacked_histogram
    from saccade.types import Window

    events = random_events(2000, width=1280, height=720, start_us=0)
    t = np.sort(events.t % 50_000)
    window = Window(t, events.x, events.y, events.p, 1280, 720, 0, 50_000)
    canvas = canvas_for(GEN1, 1280, 720, "scale")
    assert (canvas.width, canvas.height) == (384, 224)
    assert stacked_histogram(window, clip=255, canvas=canvas).sum() == len(events)


def test_events_of_another_sensor_are_refused(runtime: TorchRuntime) -> None:
    with pytest.raises(ValueError, match="made for 120 x 40"):
        list(Tiled(runtime, 100, 120, 40, (64, 40)).run(Events.join([random_events(10, width=60, height=40, start_us=0)])))
