"""NAME.csv -> LABELS: one box a line, see `read_csv`."""

import csv
from pathlib import Path

import numpy as np

from saccade.datasets.labels import RawLabels, from_columns
from saccade.events.open import open_events
from saccade.files import check_readable
from saccade.types import InputError

UNITS = (("us", 1.0), ("ms", 1e3), ("s", 1e6))
TIMES = {f"{name}_{unit}": factor for name in ("t", "ts", "time", "timestamp", "elapsed") for unit, factor in UNITS}
SIZES = ("x", "y", "w", "h"), ("x", "y", "width", "height")
CORNERS = ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"), ("xmin", "ymin", "xmax", "ymax")
CLASSES = ("class", "class_id", "label", "category", "class_name")
TRACKS = ("track", "track_id")
EXPECTED = "expected a first line such as t_us,x,y,w,h,class or t_s,x1,y1,x2,y2,class,track"


def read_csv(path: Path, classes: tuple[str, ...], events: Path) -> RawLabels:
    """One box a line, columns found by the names in the first line. CLASSES: the names of classes, by index.

      time     t_us (microseconds), t_ms or t_s (seconds), on the clock of the recording's events; also time_us, timestamp_us, ...;
               elapsed_us, elapsed_ms or elapsed_s: since the first event of the recording EVENTS
      box      x, y, w, h (top left corner and size in pixels) or x1, y1, x2, y2 (also left, top, right, bottom or xmin, ymin, xmax, ymax)
      class    a name, or an index from 0 on; also class_id, label, category
      track    optional: a number that stays with the object; also track_id

    A line with a time but without a box says that the instant was looked at and has no objects. Separated by comma, semicolon or tab.
    """
    names, rows = _rows(path)
    time, factor = next(((names.index(name), factor) for name, factor in TIMES.items() if name in names), (None, 0.0))
    box = next((columns for columns in (*SIZES, *CORNERS) if all(name in names for name in columns)), None)
    kind = next((names.index(name) for name in CLASSES if name in names), None)
    track = next((names.index(name) for name in TRACKS if name in names), None)
    if time is None or box is None or kind is None:
        what = "time with a unit" if time is None else "box" if box is None else "class"
        raise InputError(f"{path}: no column for the {what} among {', '.join(names)}; {EXPECTED}")
    places = [names.index(name) for name in box]
    zero_us = first_event_us(events) if names[time].startswith("elapsed") else 0
    instants, table, numbers = [], [], []
    for line, row in enumerate(rows, 2):
        if not any(cell.strip() for cell in row):
            continue
        try:
            cells = [row[i].strip() for i in (time, *places, kind)]
            instants.append(zero_us + _time_us(cells[0], factor))
            if not any(cells[1:5]):
                continue
            table.append([float(cell) for cell in cells[1:5]])
            tracked = int(row[track]) if track is not None and row[track].strip() else -1
            numbers.append((instants[-1], class_index(cells[5], classes), tracked))
        except (ValueError, IndexError, OverflowError) as error:
            raise InputError(f"{path}, line {line}: {','.join(row)!r:.120} ({error}); {EXPECTED}") from error
    boxes = np.array(table, np.float64).reshape(-1, 4)
    if box in CORNERS:
        boxes[:, 2:] -= boxes[:, :2]
    whole = np.array(numbers, np.int64).reshape(-1, 3)
    columns = {"t": whole[:, 0], "class_id": whole[:, 1], "track_id": whole[:, 2], **dict(zip("xywh", boxes.T, strict=True))}
    return from_columns(columns, str(path), np.array(instants, np.int64))


def first_event_us(events: Path) -> int:
    with open_events(events) as reader:
        return reader.start_us


def class_index(cell: str, classes: tuple[str, ...]) -> int:
    """Of a name, or of an index that is written as a number."""
    if cell in classes:
        return classes.index(cell)
    if cell.isdecimal() and int(cell) < len(classes):
        return int(cell)
    raise ValueError(f"class {cell!r} is none of {', '.join(classes)}")


def is_label_csv(path: Path) -> bool:
    """A csv may also be a recording: labels have a class."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return bool(set(_split(file.readline(4096))) & set(CLASSES))
    except OSError:
        return False


def classes_in(path: Path) -> set[str]:
    """The cells of the class column, as they are written."""
    names, rows = _rows(path)
    kind = next((names.index(name) for name in CLASSES if name in names), None)
    return set() if kind is None else {cell for row in rows if len(row) > kind and (cell := row[kind].strip())}


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    check_readable(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        first, _, rest = text.partition("\n")
        return _split(first), list(csv.reader(rest.splitlines(), delimiter=_delimiter(first)))
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise InputError(f"{path}: not a csv file ({error}); {EXPECTED}") from error


def _split(line: str) -> list[str]:
    return [name.strip().strip('"').lower() for name in line.split(_delimiter(line))]


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _time_us(cell: str, factor: float) -> int:
    """Whole microseconds stay whole: floats lose them after 285 years only, but the text may already be an integer."""
    return int(cell) if factor == 1.0 and cell.lstrip("-").isdecimal() else round(float(cell) * factor)
