"""DETECTIONS + FRAMES -> MCAP for Foxglove: pictures of the events on /events, boxes over them on /detections."""

import base64
import io
import json
from pathlib import Path
from typing import Any

from saccade.outputs.outputs import Histogram, Look, Output, Records, Run, decimals
from saccade.outputs.overlay import label, track_colour
from saccade.outputs.picture import colours
from saccade.types import Detections, InputError

CHUNK = 1 << 18  # bytes; of a process that was killed, the last chunk is lost
LINE_LOOP = 2
TIME = {"type": "object", "title": "time", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}
POINT = {"type": "object", "title": "foxglove.Point2", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}}
COLOUR = {"type": "object", "title": "foxglove.Color", "properties": {name: {"type": "number"} for name in "rgba"}}


def _objects(title: str, **properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "title": title, "properties": properties}}


PAIRS = _objects("foxglove.KeyValuePair", key={"type": "string"}, value={"type": "string"})
# What of Foxglove's well-known schemas is used here, under the names by which it knows them.
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


class Mcap(Output):
    """Open it in Foxglove, add an Image panel, choose /events, and switch on the annotations of /detections."""

    wants_frames = True

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, run)
        try:
            from mcap.writer import Writer
        except ImportError as error:
            raise InputError(f'{path}: writing MCAP needs the package mcap; `pip install "saccade[foxglove]"`') from error
        self.stream = _Growing(Records(self.part))
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
        content = json.dumps({"timestamp": _time(time_us), **message}).encode()
        time_ns = max(time_us, 0) * 1000
        self.writer.add_message(self.channels[topic], log_time=time_ns, publish_time=time_ns, data=content)


def annotations(detections: Detections, classes: tuple[str, ...]) -> dict[str, Any]:
    """A closed line and a text per box."""
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


def png(frame: Histogram) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(colours(frame)).save(data, "png", compress_level=3)
    return data.getvalue()


class _Growing:
    """Records as the stream that the writer of MCAP expects: each write is whole or taken back."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def write(self, data: bytes) -> int:
        self.records.append(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self.records.size

    def flush(self) -> None:
        """Nothing is held back."""


def _time(time_us: int) -> dict[str, int]:
    seconds, rest = divmod(max(time_us, 0), 1_000_000)
    return {"sec": seconds, "nsec": rest * 1000}
