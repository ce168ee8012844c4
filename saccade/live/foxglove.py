"""SESSION -> FOXGLOVE: events as images, boxes as annotations over them, rate and least score as parameters, by foxglove-sdk's server.

Topics and messages are those of our .mcap files. Pictures are made only while somebody looks, at most PICTURES_HZ of them a second.
"""

import base64
import json
import threading
from typing import Any

from saccade.live.panel import Panel
from saccade.live.playback import SHOWN_US
from saccade.live.session import Session
from saccade.live.surface import png_of
from saccade.outputs.viewer_logs import SCHEMAS, TOPICS, annotations, json_message
from saccade.types import InputError

PICTURES_HZ = 20.0
PARAMETERS = {"rate_hz": "rate_hz", "score": "score"}  # name: attribute of the session


class FoxgloveServer:
    """`start` it beside a session that runs, `close` it. The first detector's boxes are /detections, those of NAME /NAME/detections."""

    def __init__(self, session: Session, port: int, host: str = "127.0.0.1") -> None:
        self.session = session
        self._told: dict[str, float] = {}
        self._looking: dict[str, int] = {}  # topic -> how many
        self._seen_us = -1
        self._closed = threading.Event()
        from foxglove import Channel, Context, Schema, start_server
        from foxglove.websocket import Capability

        self._context = context = Context()  # kept: the server forgets its channels with it

        def channel(topic: str, kind: str) -> Any:
            schema = {"title": kind, "type": "object", "properties": SCHEMAS[kind]}
            described = Schema(name=kind, encoding="jsonschema", data=json.dumps(schema).encode())
            return Channel(topic, schema=described, message_encoding="json", context=context)

        self._pictures = channel("/events", TOPICS["/events"])
        self._boxes = [
            (panel, channel("/detections" if number == 0 else f"/{panel.name}/detections", TOPICS["/detections"]))
            for number, panel in enumerate(session.panels)
        ]
        try:
            self._server = start_server(
                name=f"saccade {session.name}", host=host, port=port, context=context,
                capabilities=[Capability.Parameters, Capability.Time], server_listener=_Listener(self),
            )  # fmt: skip
        except (OSError, RuntimeError, OverflowError) as error:
            raise InputError(f"can't serve Foxglove on {host}, port {port} ({error}); choose another with --foxglove") from error
        self.port = self._server.port
        self._thread = threading.Thread(target=self._run, name="saccade-foxglove", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._server.stop()

    def values(self) -> dict[str, float]:
        return {name: float(getattr(self.session, attribute)) for name, attribute in PARAMETERS.items()}

    def set(self, name: str, value: Any) -> None:
        """A parameter, as somebody there wants it; what can't be is said there."""
        from foxglove import StatusLevel

        try:
            if name not in PARAMETERS or isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name}: expected a number for {' or '.join(PARAMETERS)}")
            if name == "score" and not 0 <= value <= 1:
                raise InputError(f"score: {value:g}, expected 0 to 1")
            setattr(self.session, PARAMETERS[name], float(value))
        except InputError as error:
            self._server.publish_status(str(error), StatusLevel.Warning)

    def looks(self, topic: str, more: int) -> None:
        self._looking[topic] = max(self._looking.get(topic, 0) + more, 0)

    def _run(self) -> None:
        from foxglove import Parameter

        while not self._closed.wait(1 / PICTURES_HZ):
            values = self.values()
            if values != self._told:
                self._told = values
                self._server.publish_parameter_values([Parameter(name, value=value) for name, value in values.items()])
            if any(self._looking.values()):
                self._show()

    def _show(self) -> None:
        session, now_us = self.session, self.session.now_us()
        surface = session.surface
        if surface is None or now_us == self._seen_us:
            return
        if now_us < self._seen_us:  # a recording that begins again
            self._server.clear_session()
        self._seen_us = now_us
        self._server.broadcast_time(max(now_us, 0) * 1000)
        if self._looking.get("/events"):
            data = base64.b64encode(png_of(surface.shades(now_us, SHOWN_US, factor=1))).decode()
            self._log(self._pictures, now_us, {"frame_id": "sensor", "format": "png", "data": data})
        for panel, channel in self._boxes:
            if self._looking.get(channel.topic()) and panel.found is not None:
                self._log(channel, now_us, self._annotations(panel))

    def _annotations(self, panel: Panel) -> dict[str, Any]:
        assert panel.found is not None
        return annotations(panel.found.shown(self.session.score), panel.stream.classes)

    def _log(self, channel: Any, time_us: int, message: dict[str, Any]) -> None:
        channel.log(json_message(time_us, message), log_time=max(time_us, 0) * 1000)


class _Listener:
    """What clients do; called in threads of the server. It must have every method of foxglove's ServerListener."""

    def __init__(self, server: FoxgloveServer) -> None:
        self._of = server

    def on_subscribe(self, client: Any, channel: Any) -> None:
        self._of.looks(channel.topic, 1)

    def on_unsubscribe(self, client: Any, channel: Any) -> None:
        self._of.looks(channel.topic, -1)

    def on_get_parameters(self, client: Any, param_names: list[str], request_id: str | None = None) -> list[Any]:
        from foxglove import Parameter

        return [Parameter(name, value=value) for name, value in self._of.values().items() if not param_names or name in param_names]

    def on_set_parameters(self, client: Any, parameters: list[Any], request_id: str | None = None) -> list[Any]:
        for parameter in parameters:
            self._of.set(parameter.name, parameter.get_value())
        return self.on_get_parameters(client, [])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)
