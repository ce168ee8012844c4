"""Boxes on a ROS 2 topic: another implementation of ROS's serialisation reads them; stamps are the events' time, ids the tracks."""

import os
import time
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

pytest.importorskip("cyclonedds", reason='no cyclonedds; `pip install "saccade-events[ros2]"`')

from saccade.live.ros2 import Ros2Detections, publish_to
from saccade.sources.ros2 import Ros2Topic, open_node, sensor_qos
from saccade.sources.source import Replay
from saccade.types import Detections, InputError
from tests.live.pages import session_of
from tests.make.events import random_events
from tests.make.ros import messages, typestore
from tests.sources.ros2 import SURROUNDINGS, publish, wait_for_reader, writer_of
from tests.sources.test_sources import wait_for
from tests.stream.streams import events

# vision_msgs 4, as in ROS 2 Humble and later.
DEFINITIONS = {
    "Point2D": "float64 x\nfloat64 y\n",
    "Pose2D": "vision_msgs/Point2D position\nfloat64 theta\n",
    "BoundingBox2D": "vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n",
    "ObjectHypothesis": "string class_id\nfloat64 score\n",
    "ObjectHypothesisWithPose": "vision_msgs/ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n",
    "Detection2D": "std_msgs/Header header\nvision_msgs/ObjectHypothesisWithPose[] results\nvision_msgs/BoundingBox2D bbox\nstring id\n",
    "Detection2DArray": "std_msgs/Header header\nvision_msgs/Detection2D[] detections\n",
}


@pytest.fixture(autouse=True)
def _on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)


class Heard:
    """A subscriber that keeps what comes as bytes, and reads them with `rosbags`."""

    def __init__(self, topic: str) -> None:
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic

        from saccade.sources.ros2_types import RosDetections

        self.store = get_typestore(Stores.ROS2_HUMBLE)
        for name, text in DEFINITIONS.items():
            self.store.register(get_types_from_msg(text, f"vision_msgs/msg/{name}"))
        self.node = open_node("test")
        self.reader = DataReader(self.node, Topic(self.node, f"rt{topic}", RosDetections), qos=sensor_qos(1000))

    def next(self) -> Any:
        """As read by the other implementation."""
        until_s = time.monotonic() + 240
        while not (samples := self.reader.take(1)):
            assert time.monotonic() < until_s, "nothing came"
            time.sleep(0.01)
        return self.store.deserialize_cdr(samples[0].serialize(use_version_2=False), "vision_msgs/msg/Detection2DArray")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.originalname}_{os.getpid()}/detections"


def test_a_message_says_what_was_found(topic: str) -> None:
    heard, publisher = Heard(topic), Ros2Detections(topic, ("car", "two-wheeler"))
    wait_for_reader(publisher._writer)
    boxes = np.array([[10, 20, 30, 50], [0, 0, 4, 8]], np.float32)
    found = Detections(boxes, np.array([0.75, 0.5], np.float32), np.array([1, 0]), 1_234_567, np.array([42, -1]))
    publisher.publish(found, "cam")
    message = heard.next()
    assert (message.header.stamp.sec, message.header.stamp.nanosec, message.header.frame_id) == (1, 234_567_000, "cam")
    first, second = message.detections
    assert (first.id, second.id) == ("42", "")
    assert (first.results[0].hypothesis.class_id, first.results[0].hypothesis.score) == ("two-wheeler", 0.75)
    assert (first.bbox.center.position.x, first.bbox.center.position.y, first.bbox.size_x, first.bbox.size_y) == (20, 35, 20, 30)
    assert first.results[0].pose.pose.orientation.w == 1
    assert first.results[0].pose.covariance.tolist() == [0.0] * 36
    publisher.publish(found[:0], "cam")
    assert heard.next().detections == []
    with pytest.raises(InputError, match="2038"):
        publisher.publish(Detections(boxes, found.scores, found.classes, -5, found.tracks), "cam")


def test_events_of_a_topic_become_boxes_on_another(topic: str) -> None:
    """An answer for every window, in their frame and at their time, without a page."""
    part = random_events(2000, width=160, height=128, span_us=200_000, start_us=7_000_000)
    source = Ros2Topic(topic.replace("detections", "events"))
    session = session_of(source, rate_hz=50)
    heard = Heard(topic)
    publish_to(session, topic)
    session.start()
    try:
        writer = writer_of(topic.replace("detections", "events"))
        wait_for_reader(writer)
        publish(writer, [data for _, data in messages(typestore(2), 2, part, "evt3", 100, frame="lens")])
        wait_for(lambda: session.panels[0].found is not None)
        message = heard.next()
        assert message.header.frame_id == "lens"
        assert 7_000_000_000 <= message.header.stamp.sec * 10**9 + message.header.stamp.nanosec <= 7_500_000_000
    finally:
        session.close()


def test_a_publisher_that_fails_ends_without_the_stream(topic: str) -> None:
    session = session_of(Replay(events(20_000, span_us=60_000_000)), rate_hz=50)
    calls: list[int] = []

    def fail(panel: object, found: Detections) -> None:
        calls.append(found.time_us)
        raise RuntimeError("no network")

    session.listen(fail, "ros2:/detections")
    session.start()
    wait_for(lambda: len(session.panels[0]._answered_us) > 3)
    session.close()
    assert len(calls) == 1
    assert session.problem == "ros2:/detections: ended: no network"
