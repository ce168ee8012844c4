"""DETECTIONS -> ROS 2 TOPIC, over DDS and without a ROS installation: vision_msgs/Detection2DArray, a message for every answer."""

from saccade.live.panel import Panel
from saccade.live.session import Session
from saccade.sources.ros2 import dds_topic, open_node, sensor_qos
from saccade.types import Detections, InputError

KEPT = 5  # messages that wait for a slow network
FRAME = "event_camera"  # where the source states none
LATEST_S = (1 << 31) - 1  # that a stamp can hold


class Ros2Detections:
    """`publish` answers. Boxes are centre and size in pixels of the sensor, `id` is the track, "" for none; stamps are the events' time."""

    def __init__(self, topic: str, classes: tuple[str, ...]) -> None:
        self.topic, self.classes = topic, classes
        wire_name = dds_topic(topic)
        self.node = open_node(f"ros2:{topic}")
        from cyclonedds.pub import DataWriter
        from cyclonedds.topic import Topic

        from saccade.sources.ros2_types import RosDetections

        self._writer = DataWriter(self.node, Topic(self.node, wire_name, RosDetections), qos=sensor_qos(KEPT))

    def publish(self, found: Detections, frame: str) -> None:
        from saccade.sources import ros2_types as ros

        seconds, rest = divmod(found.time_us, 1_000_000)
        if not 0 <= seconds <= LATEST_S:
            raise InputError(f"ros2:{self.topic}: {found.time_us} us can't be a stamp of ROS, which ends in the year 2038")
        header = ros.RosHeader(stamp=ros.RosTime(sec=seconds, nanosec=rest * 1000), frame_id=frame)
        nowhere = ros.RosPoseWithCovariance(
            ros.RosPose(ros.RosPoint(0.0, 0.0, 0.0), ros.RosQuaternion(0.0, 0.0, 0.0, 1.0)), [0.0] * 36
        )  # events know no distance
        tracks = [-1] * len(found) if found.tracks is None else found.tracks.tolist()
        rows = zip(found.boxes.tolist(), found.scores.tolist(), found.classes.tolist(), tracks, strict=True)
        detections = []
        for (left, top, right, bottom), score, index, track in rows:
            centre = ros.RosPose2D(ros.RosPoint2D((left + right) / 2, (top + bottom) / 2), 0.0)
            kind = ros.RosHypothesisWithPose(ros.RosHypothesis(self.classes[index], score), nowhere)
            box = ros.RosBox(centre, right - left, bottom - top)
            detections.append(ros.RosDetection(header, [kind], box, str(track) if track >= 0 else ""))
        self._writer.write(ros.RosDetections(header, detections))


def publish_to(session: Session, topic: str) -> None:
    """Every answer of the first detector, with boxes from the session's least score on."""
    first = session.panels[0]
    publisher = Ros2Detections(topic, first.stream.classes)

    def hear(panel: Panel, found: Detections) -> None:
        if panel is first:
            publisher.publish(found.shown(session.score), getattr(session.source, "frame", "") or FRAME)

    session.listen(hear, f"ros2:{topic}")
