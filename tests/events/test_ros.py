"""ROS 1 bags and MCAP files, written by `rosbags` and `mcap`: every message type, compression and kind of damage."""

from pathlib import Path

import numpy as np
import pytest

from saccade.events.ros import RosReader
from saccade.types import Events, InputError
from tests.make.events import assert_equal, collect, random_events

pytest.importorskip("rosbags")
pytest.importorskip("mcap")
from tests.make.ros import write

SOURCE = random_events(400, width=346, height=260, start_us=3_000_000)
CONTAINERS = [
    (".bag", "none"),
    (".bag", "lz4"),
    (".bag", "bz2"),
    (".mcap", "none"),
    (".mcap", "lz4"),
    (".mcap", "zstd"),
    (".mcap", "unchunked"),
]


@pytest.mark.parametrize(("suffix", "compression"), CONTAINERS)
def test_every_container(suffix: str, compression: str, tmp_path: Path) -> None:
    with RosReader(write(tmp_path / f"a{suffix}", SOURCE, compression=compression)) as reader:
        assert_equal(collect(reader), SOURCE)
        assert reader.notes == []
        assert reader.fraction == 1.0


@pytest.mark.parametrize("suffix", [".bag", ".mcap"])
@pytest.mark.parametrize("kind", ["dvs", "prophesee", "evt3", "evt2", "mono"])
def test_every_message_and_random_access(suffix: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.events.ros.ENOUGH", 60)
    # Words of EVT3 are cut anywhere, so decoding must go on from message to message with the state in the mark.
    with RosReader(write(tmp_path / f"a{suffix}", SOURCE, kind=kind, per_message=37)) as reader:
        assert_equal(collect(reader), SOURCE)
        assert len(reader.index.marks) > 3
        for start, end in ((0, 1), (3_010_000, 3_030_000), (3_099_000, 4_000_000), (0, 10**9)):
            assert_equal(reader.between(start, end), SOURCE[(SOURCE.t >= start) & (SOURCE.t < end)])


@pytest.mark.parametrize("kind", ["evt3", "evt2", "mono"])
def test_big_endian_packets(kind: str, tmp_path: Path) -> None:
    with RosReader(write(tmp_path / "a.mcap", SOURCE, kind=kind, big_endian=True)) as reader:
        assert_equal(collect(reader), SOURCE)


@pytest.mark.parametrize("frame", ["", "a", "ab", "abc", "abcd", "camera_optical_frame"])
@pytest.mark.parametrize("kind", ["dvs", "mono"])
def test_alignment_holds_for_any_name(frame: str, kind: str, tmp_path: Path) -> None:
    for count in (1, 2, 5):
        with RosReader(write(tmp_path / "a.mcap", SOURCE[:count], kind=kind, frame=frame)) as reader:
            assert_equal(collect(reader), SOURCE[:count])


@pytest.mark.parametrize("suffix", [".bag", ".mcap"])
def test_topics(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", SOURCE, topics=("/right/events", "/left/events"))
    with RosReader(path) as reader:
        assert reader.topic == "/left/events"
        assert reader.notes == ["events on /left/events, /right/events; reading /left/events (state topic= for another)"]
    with RosReader(path, topic="/right/events") as reader:
        assert_equal(collect(reader), SOURCE)
        assert reader.notes == []
    with pytest.raises(InputError, match=r"no events on topic '/chat'.*/left/events \(dvs_msgs/EventArray\)"):
        RosReader(path, topic="/chat")
    with pytest.raises(InputError, match=r"no topic with events.*topics present: /chat \(std_msgs/String\)"):
        RosReader(write(tmp_path / f"b{suffix}", SOURCE, topics=()))


@pytest.mark.parametrize("suffix", [".bag", ".mcap"])
def test_no_events_one_event_and_an_unknown_encoding(suffix: str, tmp_path: Path) -> None:
    for count in (0, 1):
        with RosReader(write(tmp_path / f"a{suffix}", SOURCE[:count])) as reader:
            assert_equal(collect(reader), SOURCE[:count])
            assert (reader.count, reader.duration_us, reader.width) == (count, count, 346)
    with pytest.raises(InputError, match="encoded as 'libcaer_cmp'; expected evt3, evt2 or mono"):
        RosReader(write(tmp_path / f"b{suffix}", SOURCE, kind="libcaer_cmp"))


def test_events_outside_the_sensor_and_out_of_order_come_as_stored(tmp_path: Path) -> None:
    odd = Events(
        np.array([30, 10, 20]), np.array([400, 65_535, 3], np.uint16), np.array([0, 1, 999], np.uint16), np.ones(3, bool), 346, 260
    )
    for suffix in (".bag", ".mcap"):
        with RosReader(write(tmp_path / f"a{suffix}", odd)) as reader:
            assert_equal(collect(reader), odd)
            assert_equal(reader.between(10, 25), odd[1:])


@pytest.mark.parametrize(("suffix", "compression"), [(".bag", "none"), (".bag", "lz4"), (".mcap", "unchunked"), (".mcap", "zstd")])
def test_cut_at_any_byte(suffix: str, compression: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # thousands of notes
    small = SOURCE[:300]
    data = write(tmp_path / f"whole{suffix}", small, compression=compression, per_message=100).read_bytes()
    path = tmp_path / f"cut{suffix}"
    most = 0
    # A bag begins with 4 KB of padding. Every byte of its end, every few elsewhere.
    for size in sorted({*range(0, len(data), 41), *range(0, 200, 3), *range(len(data) - 300, len(data))}):
        path.write_bytes(data[:size])
        try:
            with RosReader(path) as reader:
                got = collect(reader)
        except InputError:
            continue
        assert_equal(got, small[: len(got)])
        assert any("cut" in note for note in reader.notes), size
        most = max(most, len(got))
    assert most == 300  # all events, if only the index at the end is missing


@pytest.mark.parametrize("suffix", [".bag", ".mcap"])
def test_damage_is_told(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", SOURCE)
    whole = path.read_bytes()
    path.write_bytes(b"#ROSBAG V1.2\n" + whole[13:])
    with pytest.raises(InputError, match="expected a ROS 1 bag"):
        RosReader(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    with pytest.raises(InputError, match=str(path)), RosReader(path) as reader:
        collect(reader)


def test_events_before_the_first_time_are_counted(tmp_path: Path) -> None:
    """A recorder starts in the middle of the sensor's words."""
    with RosReader(write(tmp_path / "a.mcap", SOURCE, kind="evt3", skip=2)) as reader:
        got = collect(reader)
        lost = len(SOURCE) - len(got)
        assert lost > 0
        assert_equal(got, SOURCE[lost:])
        assert reader.notes == [f"{lost} events without a known time, row or column are left out"]
