"""DETECTIONS -> JSON LINES, CSV: a line is on disk as soon as it is written, so a run that was killed loses nothing."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saccade.files import check_readable
from saccade.outputs.outputs import Look, Output, Records, Run, decimals
from saccade.types import Detections, InputError

EXPECTED = (
    'expected lines such as {"time_us": 50000, "boxes": [[left, top, right, bottom]], "scores": [0.9], "classes": [0], "tracks": [3]}'
)


class JsonLines(Output):
    """One line a frame: time_us, boxes (left, top, right, bottom), scores, classes (indices), names, tracks (-1 or none)."""

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, run)
        self.records = Records(self.part)

    def write(self, detections: Detections, look: Look | None = None) -> None:
        self.records.append(json_line(detections, self.run.classes).encode())

    def end(self) -> None:
        self.records.close()


class StandardOutput(Output):
    """JSON lines for a pipe."""

    def write(self, detections: Detections, look: Look | None = None) -> None:
        sys.stdout.write(json_line(detections, self.run.classes))
        sys.stdout.flush()

    def end(self) -> None:
        sys.stdout.flush()

    def finish(self) -> None:
        self.end()


class Csv(Output):
    """One line a box, in the columns that a data set's labels have (`saccade.datasets.labels.read_csv`): detections can be labels.

    A frame without objects is a line with a time alone.
    """

    HEADER = ("t_us", "x1", "y1", "x2", "y2", "class", "track", "score")

    def __init__(self, path: Path, run: Run) -> None:
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
    """What JsonLines wrote, frame by frame."""
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
