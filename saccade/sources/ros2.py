"""ROS 2 TOPIC -> PORTIONS OF EVENTS, over DDS (cyclonedds) and without a ROS installation: event_camera_msgs/EventPacket."""

import logging
import os
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from saccade.events.ros_packets import Cursor, PacketDecoder
from saccade.machine import check_extra
from saccade.sources.network import SILENCE_S, joined
from saccade.sources.packets import SequenceNumbers
from saccade.sources.source import POLL_S, Source
from saccade.types import Events, Faults, InputError

if TYPE_CHECKING:
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.qos import Qos

log = logging.getLogger("saccade")

TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
LAST_DOMAIN = 232  # its ports are the last below 65,536
KEPT = 64  # packets that wait in the reader: a tenth of a second and more


class Ros2Topic(Source):
    """Packets of one publisher at a time: `lost` counts gaps in their numbers, `foreign` packets of others meanwhile, `bad` damaged ones.

    The first publisher is listened to until it is gone or was silent for SILENCE_S; then the next takes its place, decoded anew.
    """

    def __init__(self, topic: str, *, faults: Faults = "skip") -> None:
        self.topic, self.faults = topic, faults
        self.frame = ""  # that the packets are of
        wire_name = dds_topic(topic)
        self.node = open_node(f"ros2:{topic}")
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic

        from saccade.sources.ros2_types import RosEventPacket

        self._reader = DataReader(self.node, Topic(self.node, wire_name, RosEventPacket), qos=sensor_qos(KEPT))
        self._waiting = WaitSet(self.node)
        self._waiting.attach(ReadCondition(self._reader, SampleState.Any | ViewState.Any | InstanceState.Any))
        self._publisher: int | None = None
        self._heard_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Another publisher: its numbers, its sensor's clock and its words begin anew."""
        self._sequence, self._decoder, self._lost_before = SequenceNumbers(), PacketDecoder(), self.lost
        self._number = self._last_us = 0  # of the newest packet

    def __iter__(self) -> Iterator[Events]:
        while not self.closed:
            if not self._waiting.wait(round(POLL_S * 1e9)):
                continue
            samples = [sample for sample in self._reader.take(KEPT) if sample.sample_info.valid_data]  # others say that a writer has left
            found = [events for events in map(self._receive, samples) if events is not None]
            for events in joined([events for events in found if len(events)]):
                paused_s = time.monotonic()
                yield events
                self._heard_s += time.monotonic() - paused_s  # packets wait in the reader meanwhile: that is no silence

    def _receive(self, sample: Any) -> Events | None:
        publisher, now_s = sample.sample_info.publication_handle, time.monotonic()
        if publisher != self._publisher and not self._takes_over(publisher, now_s):
            return None
        self._heard_s = now_s
        try:
            return self._decode(sample.data)
        except InputError as error:
            if self.faults == "raise":
                raise InputError(f"{self!r}: a packet can't be decoded: {error}") from error
            if not self.bad:  # logged once: there may be thousands a second
                log.warning("%r: a packet is left out: %s", self, error)
            self.bad += 1
            self._decoder.skip(self._last_us)
            return None

    def _takes_over(self, publisher: int, now_s: float) -> bool:
        if self._publisher is not None:
            silent = now_s - self._heard_s > SILENCE_S
            there = {
                handle % (1 << 64) for handle in self._reader.get_matched_publications()
            }  # as signed numbers, the samples' are unsigned
            if not silent and self._publisher in there:
                if not self.foreign:  # logged once
                    log.warning("%r: packets of another publisher are left out while the first one sends", self)
                self.foreign += 1
                return False
            log.warning("%r: the publisher %s; listening to another one from now on", self, "was silent" if silent else "has left")
        self._publisher = publisher
        self._begin()
        return True

    def _decode(self, data: bytes) -> Events | None:
        cursor = Cursor(memoryview(data), aligned=True)
        self.frame, height, width = cursor.head()
        if not (0 < width <= 1 << 14 and 0 < height <= 1 << 14):
            raise InputError(f"a sensor of {width} x {height} pixels; expected 1 to {1 << 14} a side")
        number, missing = cursor.number(8), self._sequence.lost
        if not self._sequence.is_new(number % (1 << 32)):
            return None
        if number < self._number:  # the driver has begun again
            self._decoder = PacketDecoder()
        elif self._sequence.lost != missing:
            self._decoder.skip(self._last_us)
        self.lost, self._number = self._lost_before + self._sequence.lost, number
        t, x, y, p = self._decoder.decode(cursor)
        self._last_us = int(t[-1]) if len(t) else self._last_us
        return Events(t, x, y, p, width, height)

    def __repr__(self) -> str:
        return f"ros2:{self.topic}"


def dds_topic(topic: str) -> str:
    """What DDS calls a ROS 2 topic."""
    if not TOPIC.fullmatch(topic):
        raise InputError(f"ros2:{topic}: expected the name of a topic, such as ros2:/event_camera/events")
    return f"rt/{topic.removeprefix('/')}"


def sensor_qos(depth: int) -> "Qos":
    """As sensors are read and published in ROS 2: best effort, the newest DEPTH, nothing for those who come late, plain CDR."""
    from cyclonedds.qos import Policy, Qos

    return Qos(
        Policy.Reliability.BestEffort,
        Policy.History.KeepLast(depth),
        Policy.Durability.Volatile,
        Policy.DataRepresentation(use_cdrv0_representation=True),
    )


def open_node(name: str) -> "DomainParticipant":
    """This process among those of ROS_DOMAIN_ID (0 if not set); which network it uses is cyclonedds' setting, CYCLONEDDS_URI."""
    check_extra(name, "cyclonedds", "ros2")
    from cyclonedds.core import DDSException
    from cyclonedds.domain import DomainParticipant

    stated = os.environ.get("ROS_DOMAIN_ID") or "0"
    if not re.fullmatch(r"\d{1,3}", stated) or int(stated) > LAST_DOMAIN:
        raise InputError(f"{name}: ROS_DOMAIN_ID={stated!r:.40}; expected a whole number from 0 to {LAST_DOMAIN}")
    try:
        return DomainParticipant(int(stated))
    except DDSException as error:
        raise InputError(f"{name}: can't join DDS domain {stated} ({error}); check CYCLONEDDS_URI and the network") from error
