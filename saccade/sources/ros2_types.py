"""ROS 2 MESSAGES AS DDS TYPES, written from their public definitions; imported only where a topic is opened (extra `ros2`).

Type names are those that every ROS 2 middleware puts on the wire, `PACKAGE::msg::dds_::TYPE_`; a topic /name is called rt/name there.
Fields are in the order of the definitions, which is that on the wire.
"""

from typing import Any

from cyclonedds.idl import make_idl_struct, types
from cyclonedds.idl.types import float64, int32, uint8, uint32, uint64

generic: Any = types  # sequences and arrays, which only cyclonedds' own plug-in for mypy understands


def _message(package: str, name: str, *, is_dataclass: bool = True, **fields: Any) -> Any:
    return make_idl_struct(f"Ros{name}", f"{package}::msg::dds_::{name}_", fields, dataclassify=is_dataclass)


def _left_serialised(kind: Any) -> Any:
    """Messages that stay `data`, bytes in CDR: cyclonedds would make a Python number of every byte of the events."""

    def keep(message: Any, data: bytes) -> None:
        message.data = data

    kind.__init__, kind.serialize = keep, lambda message, **_: message.data
    kind.deserialize = kind.deserialize_key = classmethod(lambda kind, data, **_: kind(bytes(data)))  # a key: that a writer has left
    return kind


RosTime = _message("builtin_interfaces", "Time", sec=int32, nanosec=uint32)
RosHeader = _message("std_msgs", "Header", stamp=RosTime, frame_id=str)
PACKET = {
    "header": RosHeader, "height": uint32, "width": uint32, "seq": uint64, "time_base": uint64,
    "encoding": str, "is_bigendian": bool, "events": generic.sequence[uint8],
}  # fmt: skip
RosEventPacket = _left_serialised(_message("event_camera_msgs", "EventPacket", is_dataclass=False, **PACKET))

RosPoint = _message("geometry_msgs", "Point", x=float64, y=float64, z=float64)
RosQuaternion = _message("geometry_msgs", "Quaternion", x=float64, y=float64, z=float64, w=float64)
RosPose = _message("geometry_msgs", "Pose", position=RosPoint, orientation=RosQuaternion)
RosPoseWithCovariance = _message("geometry_msgs", "PoseWithCovariance", pose=RosPose, covariance=generic.array[float64, 36])

RosHypothesis = _message("vision_msgs", "ObjectHypothesis", class_id=str, score=float64)
RosHypothesisWithPose = _message("vision_msgs", "ObjectHypothesisWithPose", hypothesis=RosHypothesis, pose=RosPoseWithCovariance)
RosPoint2D = _message("vision_msgs", "Point2D", x=float64, y=float64)
RosPose2D = _message("vision_msgs", "Pose2D", position=RosPoint2D, theta=float64)
RosBox = _message("vision_msgs", "BoundingBox2D", center=RosPose2D, size_x=float64, size_y=float64)
RosDetection = _message(
    "vision_msgs", "Detection2D", header=RosHeader, results=generic.sequence[RosHypothesisWithPose], bbox=RosBox, id=str
)
RosDetections = _message("vision_msgs", "Detection2DArray", header=RosHeader, detections=generic.sequence[RosDetection])
