"""For tests of ROS 2 topics: DDS that stays on this machine, and `python -m tests.sources.ros2 RECORDING.mcap TOPIC ...`, a publisher."""

import argparse
import os
import time
from pathlib import Path
from typing import Any

# Unicast to 127.0.0.1 only: no packet leaves this machine, whatever the network.
LOOPBACK = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces><AllowMulticast>false</AllowMulticast></General>'
    '<Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>'
)
SURROUNDINGS = {"CYCLONEDDS_URI": LOOPBACK, "ROS_DOMAIN_ID": "77"}


def writer_of(topic: str) -> Any:
    """A publisher of packets, as a driver would be: messages are serialised already."""
    from cyclonedds.pub import DataWriter
    from cyclonedds.topic import Topic

    from saccade.sources.ros2 import dds_topic, open_node, sensor_qos
    from saccade.sources.ros2_types import RosEventPacket

    node = open_node("test")
    return DataWriter(node, Topic(node, dds_topic(topic), RosEventPacket), qos=sensor_qos(64))


def publish(writer: Any, packets: list[bytes], pause_s: float = 0.002) -> None:
    from saccade.sources.ros2_types import RosEventPacket

    for packet in packets:
        writer.write(RosEventPacket(packet))
        time.sleep(pause_s)


def wait_for_reader(writer: Any, most_s: float = 60.0) -> None:
    until_s = time.monotonic() + most_s
    while not writer.get_matched_subscriptions():
        assert time.monotonic() < until_s, "nobody subscribes"
        time.sleep(0.02)


def packets_of(path: Path) -> list[bytes]:
    """Messages with events as they are stored in an MCAP file."""
    from saccade.events.bags import Bag

    with path.open("rb") as file:
        bag = Bag(file, path.stat().st_size, is_mcap=True)
        return [bytes(message.data) for message in bag.messages() if bag.channels[message.channel].kind == "event_camera_msgs/EventPacket"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("recording", type=Path)
    parser.add_argument("topic")
    parser.add_argument("--leave-out", type=int, nargs="*", default=[])
    arguments = parser.parse_args()
    assert os.environ.get("CYCLONEDDS_URI") == LOOPBACK
    sending = writer_of(arguments.topic)
    wait_for_reader(sending)
    publish(sending, [packet for number, packet in enumerate(packets_of(arguments.recording)) if number not in arguments.leave_out])
    print("sent", flush=True)
    time.sleep(0.5)  # what was written leaves with the process
