"""`saccade.Stream` and `saccade detect` are one thing: fit, score and tracks by the same defaults, so the same boxes."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade import cli
from saccade.config import SCORE, DetectorConfig
from saccade.detection.decode import Decoding
from saccade.events.write import write_events
from saccade.model.detector import Detector
from saccade.outputs.tables import read_json_lines
from saccade.samples import STREET
from saccade.stream.tiles import Tiled
from saccade.types import Detections, Events, InputError
from saccade.weights.load import load_detector, save_detector
from tests.make.events import random_events
from tests.stream.streams import Idle


def street(times: int = 1) -> Events:
    """The first half second of the sample, on a sensor whose pixels are TIMES as far apart."""
    with saccade.open_events(STREET) as reader:
        one = reader.between(0, 500_000)
    return Events(one.t, one.x * np.uint16(times), one.y * np.uint16(times), one.p, 160 * times, 128 * times)


def by_command(weights: str | Path, recording: Path, **options) -> list[Detections]:
    out = recording.with_name("boxes.jsonl")
    cli.detect(weights, recording, out=(out,), overwrite=True, **options)
    return list(read_json_lines(out))


def assert_same(found: list[Detections], told: list[Detections]) -> None:
    assert [one.time_us for one in found] == [one.time_us for one in told]
    for one, other in zip(found, told, strict=True):
        for name in ("boxes", "scores", "classes", "tracks"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def assert_shown(found: list[Detections], score: float) -> None:
    """Nothing below SCORE, and of objects that are followed nothing below a third of it."""
    scores = np.concatenate([one.scores for one in found])
    tracks = np.concatenate([one.tracks for one in found if one.tracks is not None])
    assert scores[tracks < 0].min(initial=1) >= np.float32(score)
    assert scores[tracks >= 0].min() >= np.float32(score / 3)


@pytest.mark.parametrize("times", [1, 4])
def test_the_same_boxes_with_default_options(tmp_path: Path, times: int) -> None:
    """On a sensor of the trained size, and on one sixteen times as large, which both scale down."""
    recording = tmp_path / "street.h5"
    write_events([street(times)], recording)
    found = list(saccade.Stream("nano").run(recording))
    assert sum(map(len, found)) > 10
    assert_shown(found, saccade.load_detector("nano").config.least_score)
    assert max(one.tracks.max() for one in found if len(one)) >= 0  # type: ignore[union-attr]
    assert_same(found, by_command("nano", recording))


def test_tracks_take_no_box_away_and_keep_those_of_objects_that_are_followed(tmp_path: Path) -> None:
    followed, alone = (list(saccade.Stream("nano", tracker=tracker).run([street()])) for tracker in (True, False))
    score, more = saccade.load_detector("nano").config.least_score, 0
    for one, other in zip(followed, alone, strict=True):
        np.testing.assert_array_equal(one.boxes[one.scores >= score], other.boxes)
        more += len(one) - len(other)
        assert other.tracks is None
    assert more > 0


def test_weights_may_say_their_score(tmp_path: Path) -> None:
    """Stream and command take it from there, unless told otherwise; files of before have none."""
    recording, weights = tmp_path / "street.h5", tmp_path / "sure.safetensors"
    write_events([street()], recording)
    nano = load_detector("nano")
    before = load_detector("rvt-nano")
    assert before.config.score is None
    assert before.config.least_score == SCORE
    sure = Detector(replace(nano.config, score=0.6)).eval()
    sure.load_state_dict(nano.state_dict())
    save_detector(sure, weights)
    assert load_detector(weights).config.least_score == 0.6
    found = list(saccade.Stream(weights).run(recording))
    assert_shown(found, 0.6)
    assert_same(found, by_command(weights, recording))
    told = by_command(weights, recording, score=SCORE)
    assert sum(map(len, told)) > sum(map(len, found))
    assert_same(list(saccade.Stream(weights, decoding=Decoding(threshold=SCORE)).run(recording)), told)


@pytest.mark.parametrize("score", [-0.1, 1.5, float("nan")])
def test_a_score_is_from_0_to_1(score: float) -> None:
    with pytest.raises(InputError, match="from 0 to 1"):
        DetectorConfig(name="odd", score=score)
    with pytest.raises(InputError, match="from 0 to 1"):
        saccade.Stream(Idle(), score=score)


def test_a_stream_names_its_classes() -> None:
    assert saccade.Stream("nano").classes == ("car", "pedestrian", "two-wheeler")


def test_tiles_are_no_fit_of_one_stream() -> None:
    with pytest.raises(InputError, match="fit='tile'; expected auto or pad or scale"):
        saccade.Stream(Idle(), fit="tile")


def calm(rate: float, width: int, height: int, seconds: float = 1.2) -> Events:
    """RATE events per second and pixel."""
    found = random_events(int(rate * width * height * seconds), width=width, height=height, start_us=0)
    return replace(found, t=np.linspace(0, seconds * 1e6, len(found)).astype(np.int64))


@pytest.mark.parametrize(
    ("events", "options", "said"),
    [
        (calm(2, 304, 240), {}, None),
        (calm(2, 346, 260), {}, None),
        (calm(1, 1280, 720), {}, "a sensor of 1280 x 720 is shown at 0.28 of its size"),
        (calm(1, 640, 480), {"fit": "pad"}, "is shown pixel by pixel, but s5-vit-nano was trained on 304 x 240"),
        (calm(2, 128, 96), {}, "much smaller"),
        (calm(0.05, 304, 240), {}, "0.05 events per second and pixel"),
        (calm(150, 160, 120), {}, "150 events per second and pixel"),
    ],
)
def test_unfamiliar_input_is_said_once(events: Events, options: dict, said: str | None, caplog: pytest.LogCaptureFixture) -> None:
    stream = saccade.Stream(Idle(), 20, **options)
    with caplog.at_level(logging.WARNING, "saccade"):
        for _ in range(2):
            list(stream.run([events]))
            stream.reset()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (said is not None), told
    assert said is None or said in told[0]


def test_tiles_say_it_once_for_all(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "saccade"):
        list(Tiled(Idle(), 20, 640, 480).run([calm(0.05, 640, 480)]))
    assert len(caplog.records) == 1
