"""DETECTIONS + FRAMES -> LOGS FOR VIEWERS: .mcap for Foxglove, .rrd for Rerun; pictures of the events and boxes over them."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from saccade.outputs.outputs import Look, OutputWriter, Records, RunInfo, decimals, open_to_write
from saccade.outputs.picture import label, png, track_colour
from saccade.types import Detections, InputError

CHUNK = 1 << 18  # bytes; a killed process loses the last chunk
LINE_LOOP = 2
TIME = {"type": "object", "title": "time", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}
POINT = {"type": "object", "title": "foxglove.Point2", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}}
COLOUR = {"type": "object", "title": "foxglove.Color", "properties": {name: {"type": "number"} for name in "rgba"}}


def _objects(title: str, **properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "title": title, "properties": properties}}


PAIRS = _objects("foxglove.KeyValuePair", key={"type": "string"}, value={"type": "string"})
# The fields of Foxglove's well-known schemas that are used here; Foxglove recognises the names.
SCHEMAS = {
    "foxglove.CompressedImage": {
        "timestamp": TIME,
        "frame_id": {"type": "string"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": {"type": "string"},
    },
    "foxglove.ImageAnnotations": {
        "timestamp": TIME,
        "circles": _objects("foxglove.CircleAnnotation", timestamp=TIME),
        "points": _objects(
            "foxglove.PointsAnnotation",
            timestamp=TIME,
            type={"type": "integer"},
            points={"type": "array", "items": POINT},
            outline_color=COLOUR,
            outline_colors={"type": "array", "items": COLOUR},
            fill_color=COLOUR,
            thickness={"type": "number"},
            metadata=PAIRS,
        ),
        "texts": _objects(
            "foxglove.TextAnnotation",
            timestamp=TIME,
            position=POINT,
            text={"type": "string"},
            font_size={"type": "number"},
            text_color=COLOUR,
            background_color=COLOUR,
        ),
    },
}
TOPICS = {"/events": "foxglove.CompressedImage", "/detections": "foxglove.ImageAnnotations"}


class McapWriter(OutputWriter):
    """For Foxglove: add an Image panel, choose /events, and switch on the annotations of /detections."""

    wants_frames = True

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        try:
            from mcap.writer import Writer
        except ImportError as error:
            raise InputError(f'{path}: writing MCAP needs the package mcap; `pip install "saccade-events[foxglove]"`') from error
        self.stream = _RecordStream(Records(self.part))
        self.writer = Writer(self.stream, chunk_size=CHUNK)  # type: ignore[arg-type]
        self.writer.start(profile="", library="saccade")
        self.channels = {}
        for topic, name in TOPICS.items():
            schema = {"title": name, "type": "object", "properties": SCHEMAS[name]}
            number = self.writer.register_schema(name=name, encoding="jsonschema", data=json.dumps(schema).encode())
            self.channels[topic] = self.writer.register_channel(topic=topic, message_encoding="json", schema_id=number)

    def write(self, detections: Detections, look: Look | None = None) -> None:
        if look is not None:
            data = base64.b64encode(png(look())).decode()
            self._add("/events", detections.time_us, {"frame_id": "sensor", "format": "png", "data": data})
        self._add("/detections", detections.time_us, annotations(detections, self.run.classes))

    def end(self) -> None:
        try:
            self.writer.finish()
        finally:
            self.stream.records.close()

    def _add(self, topic: str, time_us: int, message: dict[str, Any]) -> None:
        content = json_message(time_us, message)
        time_ns = max(time_us, 0) * 1000
        self.writer.add_message(self.channels[topic], log_time=time_ns, publish_time=time_ns, data=content)


class RrdWriter(OutputWriter):
    """For Rerun, which writes in the background a few times a second: a killed process loses the last moments."""

    wants_frames = True

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        try:
            import rerun
        except ImportError as error:
            raise InputError(f'{path}: writing .rrd needs Rerun; `pip install "saccade-events[rerun]"`') from error
        open_to_write(self.part).close()
        self.rerun = rerun
        self.log = rerun.RecordingStream("saccade")
        self.log.save(str(self.part))

    def write(self, detections: Detections, look: Look | None = None) -> None:
        rerun = self.rerun
        self.log.set_time("event_time", duration=np.timedelta64(detections.time_us, "us"))
        if look is not None:
            self.log.log("events", rerun.EncodedImage(contents=png(look()), media_type="image/png"))
        tracks = [-1] * len(detections) if detections.tracks is None else detections.tracks.tolist()
        boxes = rerun.Boxes2D(
            array=detections.boxes,
            array_format=rerun.Box2DFormat.XYXY,
            labels=[label(detections, row, self.run.classes) for row in range(len(detections))],
            colors=[track_colour(track) for track in tracks],
        )
        self.log.log("events/detections", boxes)

    def end(self) -> None:
        self.log.disconnect()


def annotations(detections: Detections, classes: tuple[str, ...]) -> dict[str, Any]:
    """A closed line and a text for each box, as a foxglove.ImageAnnotations message."""
    time = _time(detections.time_us)
    tracks = [-1] * len(detections) if detections.tracks is None else detections.tracks.tolist()
    points, texts = [], []
    for row, ((left, top, right, bottom), track) in enumerate(zip(decimals(detections.boxes), tracks, strict=True)):
        colour = dict(zip("rgba", (*(part / 255 for part in track_colour(track)), 1.0), strict=True))
        corners = [{"x": x, "y": y} for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]
        values = {"class": classes[detections.classes[row]], "score": str(detections.scores[row]), "track": str(track)}
        points.append(
            {
                "timestamp": time,
                "type": LINE_LOOP,
                "points": corners,
                "outline_color": colour,
                "outline_colors": [],
                "fill_color": {**colour, "a": 0.0},
                "thickness": 1.0,
                "metadata": [{"key": key, "value": value} for key, value in values.items()],
            }
        )
        texts.append(
            {
                "timestamp": time,
                "position": {"x": left, "y": top},
                "text": label(detections, row, classes),
                "font_size": 8.0,
                "text_color": {"r": 1.0, "g": 1.0, "b": 1.0, "a": 1.0},
                "background_color": colour,
            }
        )
    return {"circles": [], "points": points, "texts": texts}


def json_message(time_us: int, message: dict[str, Any]) -> bytes:
    """One of SCHEMAS, with its time."""
    return json.dumps({"timestamp": _time(time_us), **message}).encode()


class _RecordStream:
    """Records as the stream that mcap's Writer expects: each write is complete or taken back."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def write(self, data: bytes) -> int:
        self.records.append(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self.records.size

    def flush(self) -> None:
        """Records are unbuffered."""


def _time(time_us: int) -> dict[str, int]:
    seconds, rest = divmod(max(time_us, 0), 1_000_000)
    return {"sec": seconds, "nsec": rest * 1000}
