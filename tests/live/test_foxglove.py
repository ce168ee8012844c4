"""Foxglove: a client that speaks its protocol sees pictures and boxes, sets rate and least score; nothing is made while nobody looks."""

import base64
import io
import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

pytest.importorskip("foxglove", reason='no foxglove-sdk; `pip install "saccade-events[foxglove]"`')

from PIL import Image

from saccade.live.foxglove import FoxgloveServer
from saccade.live.surface import png_of
from saccade.sources.source import Replay
from saccade.types import Detections, InputError
from tests.live.pages import session_of
from tests.stream.streams import events

MESSAGE = struct.Struct("<BIQ")  # opcode, subscription, time in ns


@contextmanager
def client_of(server: FoxgloveServer) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{server.port}", subprotocols=["foxglove.sdk.v1"], max_size=None) as client:  # type: ignore[list-item]
        yield client


def told(client: ClientConnection, op: str) -> dict[str, Any]:
    """The next JSON message of that kind."""
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s:
        message = client.recv(timeout=240)
        if isinstance(message, str) and json.loads(message)["op"] == op:
            return json.loads(message)
    raise AssertionError(f"no {op} came")


@pytest.fixture
def server() -> Iterator[FoxgloveServer]:
    session = session_of(Replay(events(20_000, span_us=60_000_000)), rate_hz=20, panels=2)
    opened = FoxgloveServer(session, 0)
    session.start()
    opened.start()
    yield opened
    opened.close()
    session.close()


def test_a_client_sees_events_and_boxes(server: FoxgloveServer) -> None:
    with client_of(server) as client:
        assert set(told(client, "serverInfo")["capabilities"]) >= {"parameters", "time"}
        channels = {channel["topic"]: channel for channel in told(client, "advertise")["channels"]}
        assert {topic: channel["schemaName"] for topic, channel in channels.items()} == {
            "/events": "foxglove.CompressedImage",
            "/detections": "foxglove.ImageAnnotations",
            "/idle 1/detections": "foxglove.ImageAnnotations",
        }
        assert not any(server._looking.values()), "nobody looks yet"
        panel = server.session.panels[0]
        wanted = [{"id": number, "channelId": channels[topic]["id"]} for number, topic in enumerate(("/events", "/detections"))]
        client.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))
        seen: dict[int, tuple[int, dict[str, Any]]] = {}
        until_s = time.monotonic() + 240
        while (len(seen) < 2 or not seen[1][1]["points"]) and time.monotonic() < until_s:
            if panel.found is not None:  # an idle detector finds nothing: put something there
                boxes = np.array([[1, 2, 11, 22], [5, 5, 9, 9]], np.float32)
                scores = np.array([0.9, 0.01], np.float32)
                panel.found = Detections(boxes, scores, np.array([0, 0]), panel.found.time_us, np.array([7, -1]))
            message = client.recv(timeout=240)
            if isinstance(message, bytes) and message[0] == 1:
                _, subscription, time_ns = MESSAGE.unpack_from(message)
                seen[subscription] = time_ns, json.loads(message[MESSAGE.size :])
        time_ns, picture = seen[0]
        image = Image.open(io.BytesIO(base64.b64decode(picture["data"])))
        assert image.size == (64, 32)
        assert picture["timestamp"]["sec"] * 10**9 + picture["timestamp"]["nsec"] == time_ns
        shown = seen[1][1]["points"]
        assert len(shown) == 1, "the other one is below the least score"
        assert shown[0]["points"][2] == {"x": 11.0, "y": 22.0}
        assert {"key": "track", "value": "7"} in shown[0]["metadata"]
        client.send(json.dumps({"op": "unsubscribe", "subscriptionIds": [0, 1]}))
        while any(server._looking.values()):
            time.sleep(0.02)


def test_rate_and_score_are_parameters(server: FoxgloveServer) -> None:
    with client_of(server) as client:
        client.send(json.dumps({"op": "getParameters", "parameterNames": [], "id": "1"}))
        values = {one["name"]: one["value"] for one in told(client, "parameterValues")["parameters"]}
        assert values == {"rate_hz": 20, "score": pytest.approx(server.session.score)}
        client.send(json.dumps({"op": "setParameters", "parameters": [{"name": "rate_hz", "value": 250}, {"name": "score", "value": 0.5}]}))
        until_s = time.monotonic() + 240
        while (server.session.rate_hz, server.session.score) != (250, 0.5):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        for wrong in ({"name": "rate_hz", "value": 5000}, {"name": "score", "value": "high"}, {"name": "score", "value": 7}):
            client.send(json.dumps({"op": "setParameters", "parameters": [wrong]}))
            assert "expected" in told(client, "status")["message"]
        assert (server.session.rate_hz, server.session.score) == (250, 0.5)


def test_a_port_that_is_taken_is_named(server: FoxgloveServer) -> None:
    with pytest.raises(InputError, match="can't serve Foxglove"):
        FoxgloveServer(session_of(), server.port)


def test_a_picture_has_the_colours_of_its_shades() -> None:
    shades = np.array([[0, 1, 127], [128 + 127, 128 + 1, 0]], np.uint8)
    pixels = np.asarray(Image.open(io.BytesIO(png_of(shades))).convert("RGB"))
    assert pixels[0, 0].tolist() == pixels[1, 2].tolist() == [250, 250, 248]
    assert pixels[0, 2].tolist() == [215, 60, 30]
    assert pixels[1, 0].tolist() == [20, 90, 200]
