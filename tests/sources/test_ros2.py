"""ROS 2 without ROS: packets of a bag come over DDS from another process, losses and restarts of its publisher are told apart."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason='no cyclonedds; `pip install "saccade-events[ros2]"`')

from saccade.events.ros import RosReader
from saccade.events.ros_packets import Cursor, PacketDecoder
from saccade.sources.network import SILENCE_S
from saccade.sources.open import open_source
from saccade.sources.ros2 import Ros2Topic, dds_topic
from saccade.types import Events, InputError
from tests.make.events import assert_equal, collect, random_events
from tests.make.ros import messages, typestore, write
from tests.sources.ros2 import SURROUNDINGS, publish, wait_for_reader, writer_of
from tests.sources.test_sources import wait_for

ROOT = Path(__file__).parents[2]
SOURCE = random_events(3000, width=160, height=128, span_us=300_000)


@pytest.fixture(autouse=True)
def _on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Tests of several processes share a domain."""
    return f"/{request.node.originalname}_{os.getpid()}/events"


class Listening:
    """A source that is read in a thread."""

    def __init__(self, topic: str) -> None:
        self.source = Ros2Topic(topic)
        self.got: list[Events] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for events in self.source:
            self.got.append(events)

    def count(self) -> int:
        return sum(map(len, self.got))

    def until(self, happened: Callable[[], object]) -> Events:
        wait_for(happened)
        return Events.join(self.got)

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        self._thread.join()


def packets(kind: str = "evt3", events: Events = SOURCE, per_message: int = 200) -> list[bytes]:
    return [data for _, data in messages(typestore(2), 2, events, kind, per_message)]


@pytest.fixture
def sender(topic: str) -> Iterator[Callable[[Path], subprocess.Popen]]:
    """A publisher in a process of its own."""
    running: list[subprocess.Popen] = []

    def start(recording: Path, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "tests.sources.ros2", str(recording), topic, *options]
        running.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, **SURROUNDINGS}))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_what_another_process_publishes_is_the_bag(topic: str, sender: Any, tmp_path: Path) -> None:
    """Two processes; a publisher that is lost, and the next one, whose numbers and clock begin anew."""
    recording = write(tmp_path / "drive.mcap", SOURCE, kind="evt3", per_message=200, topics=(topic,))
    with RosReader(recording) as reader:
        whole = collect(reader)
    with Listening(topic) as here:
        assert sender(recording).wait(timeout=120) == 0
        assert_equal(here.until(lambda: here.count() >= len(whole)), whole)
        here.got.clear()
        time.sleep(SILENCE_S + 0.5)  # until then the first one counts as there
        killed = sender(recording)
        wait_for(lambda: here.count() > 500)
        killed.kill()
        killed.wait()
        here.got.clear()
        time.sleep(SILENCE_S + 0.5)  # a killed publisher says nothing: until then it counts as there
        assert sender(recording).wait(timeout=120) == 0
        wait_for(lambda: here.count() >= len(whole))
        assert_equal(Events.join(here.got)[-len(whole) :], whole)
        assert (here.source.bad, here.source.lost, here.source.frame) == (0, 0, "cam")


@pytest.mark.parametrize("kind", ["evt3", "evt2", "mono"])
def test_packets_come_as_they_were_sent(kind: str, topic: str) -> None:
    with Listening(topic) as here:
        writer = writer_of(topic)
        wait_for_reader(writer)
        publish(writer, packets(kind))
        assert_equal(here.until(lambda: here.count() >= len(SOURCE)), SOURCE)
        assert (here.source.lost, here.source.bad, here.source.foreign) == (0, 0, 0)


def test_lost_damaged_and_foreign_packets_are_counted(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    sent = packets("mono")
    damaged = sent[6].replace(b"mono", b"mona")
    with Listening(topic) as here:
        writer = writer_of(topic)
        wait_for_reader(writer)
        publish(writer, [*sent[:3], *sent[5:6], damaged, *sent[7:10]])
        wait_for(lambda: here.count() >= 1400)
        other = writer_of(topic)
        wait_for_reader(other)
        publish(other, sent[:2])
        wait_for(lambda: here.source.foreign == 2)
        publish(writer, sent[10:])
        got = here.until(lambda: here.count() >= len(SOURCE) - 600)
        assert (here.source.lost, here.source.bad, here.source.foreign) == (2, 1, 2)
    assert_equal(got, Events.join([SOURCE[:600], SOURCE[1000:1200], SOURCE[1400:]]))
    assert sum("is left out" in record.message for record in caplog.records) == 1


def test_a_publisher_that_restarts_is_heard_at_once(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with Listening(topic) as here:
        for start_us in (0, 20_000_000, 0):
            part = random_events(400, width=160, height=128, span_us=50_000, start_us=start_us, seed=start_us)
            here.got.clear()
            writer = writer_of(topic)
            wait_for_reader(writer)
            publish(writer, packets("evt3", part))
            got = here.until(lambda: here.count() >= 400)
            assert (got.t - got.t[0]).tolist() == (part.t - part.t[0]).tolist()
            del writer
        assert here.source.lost == here.source.foreign == 0
    assert "listening to another one" in caplog.text


def test_no_time_is_guessed_after_a_gap() -> None:
    """Rows and times that a lost packet stated are unknown, and a clock that began again meanwhile isn't taken for a jump back."""
    near = random_events(600, width=160, height=128, span_us=200_000, start_us=(1 << 24) - 100_000)
    sent, decoder, got = packets("evt3", near, 100), PacketDecoder(), []
    for number, packet in enumerate(sent):
        if len(sent) // 3 <= number < 2 * len(sent) // 3:
            continue
        if number == 2 * len(sent) // 3:
            decoder.skip(int(got[-1][0][-1]))
        cursor = Cursor(memoryview(packet), aligned=True)
        cursor.head()
        cursor.number(8)
        got.append(decoder.decode(cursor))
    t, x, y, p = (np.concatenate(column) for column in zip(*got, strict=True))
    assert (np.diff(t) >= 0).all()
    known = set(zip(near.t.tolist(), near.x.tolist(), near.y.tolist(), near.p.tolist(), strict=True))
    assert set(zip(t.tolist(), x.tolist(), y.tolist(), p.tolist(), strict=True)) <= known
    assert 350 < len(t) < 420


def test_names_of_topics() -> None:
    assert dds_topic("/event_camera/events") == dds_topic("event_camera/events") == "rt/event_camera/events"
    for wrong in ("", "/", "//a", "/a/", "/1a", "/a b", "/ä"):
        with pytest.raises(InputError, match="name of a topic"):
            open_source(f"ros2:{wrong}")


def test_a_wrong_domain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", "233")
    with pytest.raises(InputError, match="ROS_DOMAIN_ID='233'; expected a whole number from 0 to 232"):
        open_source("ros2:/events")
