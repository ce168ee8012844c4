"""DETECTIONS -> COCO JSON, PROPHESEE NPY: formats with a head or a tail, kept such that a run that was cut off can be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from saccade.outputs.outputs import Look, Output, Records, Run, decimals, sized
from saccade.types import Detections

# Prophesee's fields, with signs: -1 = not followed. Its unsigned ones can't say that.
BOX = np.dtype([("t", "<i8"), *((name, "<f4") for name in "xywh"), ("class_id", "<u4"), ("track_id", "<i4"), ("class_confidence", "<f4")])
NPY_HEADER = 256  # bytes, enough for any number of rows
LEAST_FRAMES, SHARE = 64, 1 / 32  # a COCO file is brought up to date after so many frames, or so much of what it has: linear effort


class Boxes(Output):
    """Prophesee's structured array, as `*_bbox.npy` of Gen1 and 1 Mpx have it.

    It says nothing of frames without objects, and corners are float32 sums: exact to about 1e-4 pixels. The header is brought up to date
    with every frame, so the file is whole at any time.
    """

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, run)
        self.records = Records(self.part)
        self.records.append(self._header(0))

    def write(self, detections: Detections, look: Look | None = None) -> None:
        rows = np.zeros(len(detections), BOX)
        rows["t"], rows["class_id"], rows["class_confidence"] = detections.time_us, detections.classes, detections.scores
        rows["track_id"] = -1 if detections.tracks is None else detections.tracks
        for name, column in zip("xywh", sized(detections.boxes).T, strict=True):
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


class Coco(Output):
    """COCO's annotations with scores: what pycocotools loads as ground truth, and `saccade.datasets.labels.read_coco` as labels.

    Annotations are followed by the images, one a frame, those without objects too. Both grow, so the file is brought up to date in
    strides: killed without notice it lacks the last 3 % or 64 frames, stopped by Ctrl-C nothing.
    """

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, run)
        categories = [{"id": index + 1, "name": name} for index, name in enumerate(run.classes)]
        about = {"description": f"saccade detect {run.recording}", "rate_hz": run.rate_hz}
        head = f'{{"info": {json.dumps(about)},\n"categories": {json.dumps(categories)},\n"annotations": [\n'.encode()
        self.times_us: list[int] = []
        self.count = 0  # annotations
        self.pending: list[bytes] = []
        self.settled, self.settled_frames = len(head), 0  # what of the file stays as it is, and the frames that it has
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
        """Bring the file up to date or, if there is no space, back to what it was."""
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
        boxes, scores = sized(detections.boxes).tolist(), decimals(detections.scores)
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
