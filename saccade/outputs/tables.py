"""DETECTIONS -> JSON LINES, CSV, COCO JSON, PROPHESEE NPY: files for programs; what a killed run has written can be read."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.lib import format as npy

from saccade.files import check_readable
from saccade.outputs.outputs import Look, OutputWriter, Records, RunInfo, decimals
from saccade.types import Boxes, Detections, InputError

EXPECTED = (
    'expected lines such as {"time_us": 50000, "boxes": [[left, top, right, bottom]], "scores": [0.9], "classes": [0], "tracks": [3]}'
)
# Prophesee's fields, but signed: a track_id of -1 means not tracked.
BOX = np.dtype([("t", "<i8"), *((name, "<f4") for name in "xywh"), ("class_id", "<u4"), ("track_id", "<i4"), ("class_confidence", "<f4")])
NPY_HEADER = 256  # bytes, enough for any number of rows
LEAST_FRAMES, SHARE = 64, 1 / 32  # a COCO file is updated after so many frames, or this share of those it has: linear cost in all


class JsonLinesWriter(OutputWriter):
    """One line per frame: time_us, boxes (left, top, right, bottom), scores, classes (indices), names, tracks (-1: not tracked)."""

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        self.records = Records(self.part)

    def write(self, detections: Detections, look: Look | None = None) -> None:
        self.records.append(json_line(detections, self.run.classes).encode())

    def end(self) -> None:
        self.records.close()


class StandardOutputWriter(OutputWriter):
    """JSON lines to standard output, for a pipe."""

    def write(self, detections: Detections, look: Look | None = None) -> None:
        sys.stdout.write(json_line(detections, self.run.classes))
        sys.stdout.flush()

    def end(self) -> None:
        sys.stdout.flush()

    def finish(self) -> None:
        self.end()


class CsvWriter(OutputWriter):
    """One line per box, with the columns of a data set's labels (`saccade.datasets.labels.read_csv`), so detections can serve as labels.

    A frame without objects is a line with its time only.
    """

    HEADER = ("t_us", "x1", "y1", "x2", "y2", "class", "track", "score")

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        self.records = Records(self.part)
        self.records.append(_csv_lines([self.HEADER]))

    def write(self, detections: Detections, look: Look | None = None) -> None:
        tracks = [""] * len(detections) if detections.tracks is None else [track if track >= 0 else "" for track in detections.tracks]
        rows = [
            (detections.time_us, *box, self.run.classes[index], track, score)
            for box, index, track, score in zip(
                decimals(detections.boxes), detections.classes.tolist(), tracks, decimals(detections.scores), strict=True
            )
        ]
        self.records.append(_csv_lines(rows or [(detections.time_us, *[""] * (len(self.HEADER) - 1))]))

    def end(self) -> None:
        self.records.close()


class PropheseeWriter(OutputWriter):
    """Prophesee's structured array, as in `*_bbox.npy` of Gen1 and 1 Mpx.

    It has no rows for frames without objects, and corners are float32 sums: exact to about 1e-4 pixels. The header is updated with every
    frame, so the file is complete at any time.
    """

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        self.records = Records(self.part)
        self.records.append(self._header(0))

    def write(self, detections: Detections, look: Look | None = None) -> None:
        rows = np.zeros(len(detections), BOX)
        rows["t"], rows["class_id"], rows["class_confidence"] = detections.time_us, detections.classes, detections.scores
        rows["track_id"] = -1 if detections.tracks is None else detections.tracks
        for name, column in zip("xywh", _sized(detections.boxes).T, strict=True):
            rows[name] = column
        if len(rows):
            self.records.append(rows.tobytes())
            self.records.overwrite(0, self._header((self.records.size - NPY_HEADER) // BOX.itemsize))

    def end(self) -> None:
        self.records.close()

    def _header(self, count: int) -> bytes:
        fields = repr({"descr": BOX.descr, "fortran_order": False, "shape": (count,)})
        start = npy.magic(1, 0) + (NPY_HEADER - 10).to_bytes(2, "little")
        return start + fields.encode().ljust(NPY_HEADER - 11) + b"\n"


class CocoWriter(OutputWriter):
    """COCO annotations with scores: pycocotools loads them as ground truth, `saccade.datasets.labels.read_coco` as labels.

    The images, one per frame with or without objects, follow the annotations. Both grow, so the file is updated at intervals: after
    kill -9 it lacks the last 3 % or 64 frames, after Ctrl-C nothing.
    """

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        categories = [{"id": index + 1, "name": name} for index, name in enumerate(run.classes)]
        about = {"description": f"saccade detect {run.recording}", "rate_hz": run.rate_hz}
        head = f'{{"info": {json.dumps(about)},\n"categories": {json.dumps(categories)},\n"annotations": [\n'.encode()
        self.times_us: list[int] = []
        self.count = 0  # annotations
        self.pending: list[bytes] = []
        self.settled, self.settled_frames = len(head), 0  # bytes of the file that won't change, and the frames they hold
        self.records = Records(self.part)
        self.records.append(head + self._tail(0))

    def write(self, detections: Detections, look: Look | None = None) -> None:
        self.times_us.append(detections.time_us)
        for row in self._annotations(detections):
            self.pending.append((b",\n" if self.count else b"") + json.dumps(row).encode())
            self.count += 1
        if len(self.times_us) - self.settled_frames >= max(LEAST_FRAMES, self.settled_frames * SHARE):
            self._settle()

    def end(self) -> None:
        try:
            self._settle()
        finally:
            self.records.close()

    def _settle(self) -> None:
        """Update the file or, if there is no space, restore what it was."""
        annotations = b"".join(self.pending)
        try:
            self.records.overwrite(self.settled, annotations + self._tail(len(self.times_us)))
        except OSError:
            tail = self._tail(self.settled_frames)
            self.records.overwrite(self.settled, tail)
            self.records.cut(self.settled + len(tail))
            raise
        self.settled, self.settled_frames = self.settled + len(annotations), len(self.times_us)
        self.pending.clear()

    def _annotations(self, detections: Detections) -> list[dict[str, Any]]:
        boxes, scores = _sized(detections.boxes).tolist(), decimals(detections.scores)
        tracks = [-1] * len(detections) if detections.tracks is None else detections.tracks.tolist()
        return [
            {
                "id": self.count + row,
                "image_id": len(self.times_us),
                "category_id": index + 1,
                "bbox": box,
                "area": round(box[2] * box[3], 3),
                "iscrowd": 0,
                "score": score,
                "track_id": track,
            }
            for row, (box, score, index, track) in enumerate(zip(boxes, scores, detections.classes.tolist(), tracks, strict=True), 1)
        ]

    def _tail(self, frames: int) -> bytes:
        size = {"file_name": self.run.recording, "width": self.run.width, "height": self.run.height}
        images = [json.dumps({"id": number, "time_us": time_us, **size}) for number, time_us in enumerate(self.times_us[:frames], 1)]
        return ('\n],\n"images": [\n' + ",\n".join(images) + "\n]}\n").encode()


def json_line(detections: Detections, classes: tuple[str, ...]) -> str:
    line = {
        "time_us": detections.time_us,
        "boxes": decimals(detections.boxes),
        "scores": decimals(detections.scores),
        "classes": detections.classes.tolist(),
        "names": [classes[index] for index in detections.classes.tolist()],
        "tracks": None if detections.tracks is None else detections.tracks.tolist(),
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


def read_json_lines(path: Path) -> Iterator[Detections]:
    """Detections of a .jsonl file, frame by frame."""
    check_readable(path)
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
                tracks = line["tracks"]
                yield Detections(
                    np.array(line["boxes"], np.float32).reshape(-1, 4),
                    np.array(line["scores"], np.float32),
                    np.array(line["classes"], np.int64),
                    int(line["time_us"]),
                    None if tracks is None else np.array(tracks, np.int64),
                )
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise InputError(f"{path}, line {number}: {text!r:.100} ({error!r}); {EXPECTED}") from error


def _csv_lines(rows: list) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _sized(boxes: Boxes) -> Float64[np.ndarray, "n 4"]:
    """Corners -> left, top, width, height, with the fewest digits that give the corners back as float32."""
    corners = np.array(decimals(boxes), np.float64).reshape(-1, 4)
    low, size = corners[:, :2], corners[:, 2:] - corners[:, :2]
    rounded = size.round(9)
    same = (low + rounded).astype(np.float32) == boxes[:, 2:]
    return np.concatenate((low, np.where(same, rounded, size)), axis=1)
