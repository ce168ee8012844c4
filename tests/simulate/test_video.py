"""Videos: events where and when the picture changes."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from saccade.commands.simulate import simulate
from saccade.events.open import open_events
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.video import DARKEST, GAMMA, VideoSource
from saccade.types import Events, InputError

av = pytest.importorskip("av")

IDEAL = SensorConfig(mismatch=0, refractory_us=0, cutoff_hz=float("inf"), shot_hz=0, leak_hz=0, hot_fraction=0)


def write(path: Path, greys: list[int], rate: int = 20, width: int = 64, height: int = 48) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.options = width, height, "yuv420p", {"qp": "0"}
        for grey in greys:
            frame = av.VideoFrame.from_ndarray(np.full((height, width, 3), grey, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def test_a_fade_makes_as_many_events_as_thresholds_it_crosses(tmp_path: Path) -> None:
    """Linear in log intensity between frames: the times within a fade are those of the formula."""
    write(tmp_path / "fade.mp4", [40, 40, 200, 200])
    with VideoSource(tmp_path / "fade.mp4", sensor=IDEAL) as video:
        assert (video.width, video.height, video.frames) == (64, 48, 4)
        events = Events.join(list(video))
    dark, bright = (np.log(DARKEST + (1 - DARKEST) * (grey / 255) ** GAMMA) for grey in (40, 200))
    number = int((bright - dark) / 0.2)
    assert events.p.all()
    assert len(events) == pytest.approx(64 * 48 * number, rel=0.08)  # the encoder's grey may be one off
    corner = events.t[(events.x == 5) & (events.y == 5)]
    expected_us = 50_000 + 50_000 * np.arange(1, number + 1) * 0.2 / (bright - dark)
    assert np.abs(corner[:number] - expected_us[: len(corner)]).max() < 1500


def test_a_picture_that_stands_still_makes_no_events(tmp_path: Path) -> None:
    write(tmp_path / "still.mp4", [90] * 6)
    with VideoSource(tmp_path / "still.mp4", sensor=IDEAL) as video:
        assert sum(map(len, video)) == 0


def test_a_street_makes_events_where_cars_drive(shared: Path, tmp_path: Path) -> None:
    path = shared / "data/street_cars_640x352_24fps.mp4"
    simulate(path, tmp_path / "street.h5", seconds=0.5, size="320x176")
    with open_events(tmp_path / "street.h5") as reader:
        events = reader.between(0, 500_000)
        assert (reader.width, reader.height) == (320, 176)
    assert 0.35 < events.p.mean() < 0.65
    with av.open(str(path)) as container:
        frames = islice(container.decode(video=0), 12)
        greys = [frame.to_ndarray(width=320, height=176, format="gray") for frame in frames]
    logs = np.log(DARKEST + (1 - DARKEST) * (np.array(greys) / 255) ** GAMMA)
    changes = np.abs(np.diff(logs, axis=0)).sum(axis=0)
    counts = np.bincount(events.y.astype(int) * 320 + events.x, minlength=320 * 176).reshape(176, 320)
    assert np.corrcoef(changes.ravel(), counts.ravel())[0, 1] > 0.6
    assert (counts == 0).mean() > 0.3  # the camera stands: most of the picture doesn't change


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(InputError, match="no video that PyAV can read"):
        simulate(tmp_path / "text.mp4", tmp_path / "out.h5")
    with pytest.raises(InputError, match="no such file"):
        simulate(tmp_path / "none.mp4", tmp_path / "out.h5")
    with pytest.raises(InputError, match="unknown suffix"):
        simulate(tmp_path / "text.mp4", tmp_path / "out.avi")
