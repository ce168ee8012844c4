"""Detections for eyes: videos and Foxglove's files hold every frame that they should, also after they were cut off."""

import base64
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from saccade.outputs.outputs import Outputs, RunInfo
from saccade.outputs.overlay import Overlay
from saccade.outputs.picture import boxed_picture, class_marks, track_colour
from saccade.outputs.viewer_logs import McapWriter, RrdWriter
from saccade.types import Detections, InputError
from tests.outputs.test_outputs import largest_file, some

av = pytest.importorskip("av", reason="PyAV isn't installed")

from saccade.outputs.video import VideoWriter  # noqa: E402

CLASSES = ("car", "pedestrian", "two-wheeler")


def run_of(width: int = 64, height: int = 48, slow: float = 1.0) -> RunInfo:
    return RunInfo(recording="a.raw", width=width, height=height, classes=CLASSES, rate_hz=200, start_us=0, end_us=1_000_000, slow=slow)


def noise(seed: int, width: int = 64, height: int = 48) -> np.ndarray:
    return (np.random.default_rng(seed).random((20, height, width)) < 0.02).astype(np.uint8)


def times_of(path: Path) -> list[float]:
    """When each picture is shown; all of them are decoded."""
    with av.open(str(path)) as container:
        return [frame.time for frame in container.decode(video=0)]


def write(path: Path, kind: type, run: RunInfo, frames: int) -> None:
    with Outputs([kind(path, run)]) as outputs:
        for number, one in enumerate(some(frames)):
            outputs.write(one, lambda number=number: noise(number))


@pytest.mark.parametrize(("slow", "step_s", "pictures"), [(1.0, 0.02, 10), (10.0, 0.05, 40)])
def test_a_video_keeps_time(slow: float, step_s: float, pictures: int, tmp_path: Path) -> None:
    """40 frames at 200 Hz: at real speed every fourth is shown, ten times slower each, always at its own time."""
    write(tmp_path / "a.mp4", VideoWriter, run_of(slow=slow), 40)
    times = times_of(tmp_path / "a.mp4")
    np.testing.assert_allclose(times, np.arange(pictures) * step_s, atol=1e-4)


def test_frames_that_are_not_shown_are_not_made(tmp_path: Path) -> None:
    made = []
    with Outputs([VideoWriter(tmp_path / "a.mp4", run_of())]) as outputs:
        for one in some(40):
            outputs.write(one, lambda one=one: made.append(one.time_us) or noise(0))
    assert len(made) == 10


@pytest.mark.parametrize(("width", "height"), [(160, 128), (304, 240), (346, 260), (1280, 720), (33, 17)])
def test_a_picture_shows_the_sensor_above_the_axis(width: int, height: int) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    none = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 500_000)
    drawn = Overlay(run_of(width, height)).draw(picture, none)
    factor = max(1, round(480 / min(width, height)))
    assert drawn.shape[0] % 2 == drawn.shape[1] % 2 == 0
    np.testing.assert_array_equal(drawn[: height * factor : factor, : width * factor : factor], picture)


def test_a_box_is_drawn_where_it_is() -> None:
    blank = np.full((240, 304, 3), 250, np.uint8)
    one = Detections(np.array([[100, 80, 150, 130]], np.float32), np.array([0.9], np.float32), np.array([0]), 0, np.array([4]))
    drawn = Overlay(run_of(304, 240)).draw(blank, one)
    rows, columns = np.nonzero((drawn[:480] == track_colour(4)).all(axis=2))
    inside = rows >= 160  # above is the label
    assert (columns[inside].min(), columns[inside].max()) == (200, 299)
    assert rows[inside].max() == 259


def test_boxes_are_drawn_on_a_copy_and_cut_at_the_border() -> None:
    picture = np.full((20, 30, 3), 250, np.uint8)
    boxes = np.array([[2, 3, 10, 12], [-5, -5, 3, 3], [40, 3, 50, 9], [28, 18, 90, 90]], np.float32)
    marks = [mark._replace(text="") for mark in class_marks(boxes, np.array([0, 1, 2, 9]), [""] * 10)]
    drawn = boxed_picture(picture, marks, shortest=80)
    assert (picture == 250).all()
    changed = (drawn != 250).any(axis=2).reshape(20, 4, 30, 4).any(axis=(1, 3))  # in pixels of the sensor
    assert changed[3, 2:10].all()
    assert changed[11, 2:10].all()
    assert not changed[4:11, 3:9].any()
    assert changed[0, 0]
    assert changed[19, 29]


def test_neighbouring_tracks_differ() -> None:
    """Of any eight that follow each other, no two have nearly the same colour; and white text can be read on all."""
    colours = np.array([track_colour(track) for track in range(200)], float)
    assert len({track_colour(track) for track in range(200)}) == 200
    for first in range(192):
        some = colours[first : first + 8]
        distances = np.linalg.norm(some[:, None] - some[None], axis=2) + 1e3 * np.eye(8)
        assert distances.min() > 25
    linear = np.where(colours / 255 <= 0.04045, colours / 255 / 12.92, ((colours / 255 + 0.055) / 1.055) ** 2.4)
    contrast = 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    assert contrast.min() > 4


def killed(path: Path, kind: type, frames: int) -> Path:
    """What kill -9 leaves after FRAMES frames: the part as it is then, without an end."""
    output, left = kind(path, run_of(slow=10)), path.with_stem("left")
    for number, one in enumerate(some(frames)):
        output.write(one, lambda number=number: noise(number))
    left.write_bytes(output.part.read_bytes())
    output.stop()
    return left


def on_a_full_disk(path: Path, kind: type) -> Path:
    refused = pytest.raises(InputError, match="can't go on writing at")
    with largest_file(400_000), refused, Outputs([kind(path, run_of(slow=10))]) as outputs:
        for number, one in enumerate(some(5000)):
            outputs.write(one, lambda number=number: noise(number))
    return path.with_stem(f"{path.stem}.part")


def test_a_killed_video_plays(tmp_path: Path) -> None:
    times = times_of(killed(tmp_path / "a.mp4", VideoWriter, 41))
    assert not (tmp_path / "a.mp4").exists()
    assert 30 <= len(times) <= 41  # a fragment is half a second: ten pictures of 20 a second


def test_a_video_on_a_full_disk_plays(tmp_path: Path) -> None:
    times = times_of(on_a_full_disk(tmp_path / "a.mp4", VideoWriter))
    assert len(times) >= 10
    np.testing.assert_allclose(np.diff(times), 0.05, atol=1e-4)


def messages(path: Path, whole: bool = True) -> dict[str, list[dict]]:
    reader = pytest.importorskip("mcap.reader", reason="mcap isn't installed")
    found: dict[str, list[dict]] = {"/events": [], "/detections": []}
    with path.open("rb") as file:
        opened = reader.make_reader(file) if whole else reader.NonSeekingReader(file)
        try:
            for schema, channel, message in opened.iter_messages(log_time_order=False):
                assert json.loads(schema.data)["title"] == schema.name
                found[channel.topic].append({"at_us": message.log_time // 1000, **json.loads(message.data)})
        except Exception:
            if whole:
                raise
    return found


def test_foxglove_gets_pictures_and_boxes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    write(tmp_path / "a.mcap", McapWriter, run_of(), 30)
    found = messages(tmp_path / "a.mcap")
    run = some(30)
    assert [message["at_us"] for message in found["/detections"]] == [one.time_us for one in run]
    for message, one in zip(found["/detections"], run, strict=True):
        corners = [[shape["points"][0]["x"], shape["points"][0]["y"], shape["points"][2]["x"], shape["points"][2]["y"]]
                   for shape in message["points"]]  # fmt: skip
        np.testing.assert_array_equal(np.array(corners, np.float32).reshape(-1, 4), one.boxes)
        assert len(message["texts"]) == len(one)
    assert image.open(io.BytesIO(base64.b64decode(found["/events"][7]["data"]))).size == (64, 48)
    assert len(found["/events"]) == 30


@pytest.mark.parametrize("how", ["killed", "full disk"])
def test_a_cut_mcap_is_read_up_to_the_cut(how: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    part = killed(path, McapWriter, 301) if how == "killed" else on_a_full_disk(path, McapWriter)
    found = messages(part, whole=False)["/detections"]
    assert len(found) > 20
    assert [message["at_us"] for message in found] == [5000 * (number + 1) for number in range(len(found))]


def test_rerun_gets_a_file(tmp_path: Path) -> None:
    pytest.importorskip("rerun", reason="rerun-sdk (half a gigabyte) isn't installed")
    write(tmp_path / "a.rrd", RrdWriter, run_of(), 10)
    assert (tmp_path / "a.rrd").stat().st_size > 1000


def test_without_rerun_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(InputError, match=r"saccade-events\[rerun\]"):
        RrdWriter(tmp_path / "a.rrd", run_of())
