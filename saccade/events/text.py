"""csv and txt files: one event a line. Columns and time unit are stated (option, header, comment) or inferred, with a note.

By hand: general CSV readers round times to floats, don't find out what the columns mean, and can't start again at a byte position.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events import decimals
from saccade.events.columns import (
    MEND_POLARITY,
    MICROSECONDS_EXPONENT,
    POLARITIES,
    ROLES,
    SAMPLE,
    check_unit,
    infer_columns,
    infer_unit,
    parse_columns,
    roles_of,
)
from saccade.events.reader import IndexedReader, new_columns
from saccade.files import check_readable
from saccade.types import Events, InputError

BLOCK = 1 << 20  # bytes read at once, and the longest line
SEPARATOR = re.compile(r"[ \t]*[,;][ \t]*|[ \t]+")
NUMERIC = re.compile(r"[-+.\d].*|nan|inf|infinity|true|false", re.IGNORECASE)  # no name of a column looks like this
OURS = "# saccade events:"  # first words of the comment that write.py writes
FIELDS = {"_": decimals.SKIPPED, "t": decimals.TIME, "x": decimals.X, "y": decimals.Y, "p": decimals.POLARITY}


@dataclass
class TextLayout:
    """Columns, unit and sensor of a file, and where its events begin."""

    columns: tuple[str, ...] | None = None
    time_unit: str | None = None
    width: int | None = None
    height: int | None = None
    start: int = 0  # position of the first line with an event
    line: int = 1  # its number
    notes: list[str] = field(default_factory=list)  # what was inferred
    guessed: bool = False  # the columns were inferred


class TextReader(IndexedReader):
    """Numbers separated by blanks, tabs, commas or semicolons; comments begin with # or %.

    Times are rounded from the decimal digits to whole microseconds, half to even. An incomplete last line without newline is left out
    with a note. A line longer than 1 MB is an error, so memory stays bounded.
    """

    format: ClassVar[str] = "text"
    mark_length: ClassVar[int] = 2

    def __init__(
        self,
        path: Path,
        *,
        width: int | None = None,
        height: int | None = None,
        columns: str | None = None,
        time_unit: str | None = None,
        index_path: Path | None = None,
    ) -> None:
        check_readable(path)
        self.layout = layout = read_layout(path, parse_columns(columns) if columns else None, check_unit(time_unit) if time_unit else None)
        super().__init__(path, 0, 0, index_path, f"{layout.columns}|{layout.time_unit}|{layout.start}")
        for text in layout.notes:
            self.note(text)
        self.width = width or layout.width or 0
        self.height = height or layout.height or 0
        if not (self.width and self.height):
            self._infer_size()

    def _infer_size(self) -> None:
        """The extent of the events: one pass over the file, then from the cached index."""
        extent = self.index.extent
        if 0 in extent:
            raise InputError(f"{self.path}: no events and no sensor size in it; state width and height, or give a file with events")
        self.width, self.height = self.width or extent[0], self.height or extent[1]
        self.note(f"the file doesn't state the sensor; {self.width} x {self.height} is the extent of the events (state width and height)")

    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        position, line = mark or (self.layout.start, self.layout.line)
        saw, rest = 0, b""
        check_readable(self.path)  # it may have vanished since
        with self.path.open("rb") as file:
            size = max(file.seek(0, 2), 1)
            file.seek(position)
            step = BLOCK - (position - self.layout.start) % BLOCK  # the same blocks from every mark, or the last line of one would be lost
            while block := file.read(step):
                block, step = rest + block, BLOCK
                cut = block.rfind(b"\n") + 1
                if cut == 0 and len(block) >= BLOCK:
                    raise InputError(
                        f"{self.path}: line {line} is longer than {BLOCK >> 20} MB ({_show(block)}); expected one event a line"
                    )
                events, lines, saw = self._parse(block[:cut], line, saw)
                rest = block[cut:]
                self.fraction = min((position + cut) / size, 1.0)
                if len(events):
                    yield (position, line), events
                position, line = position + cut, line + lines
        if rest:
            events, _, _ = self._parse(rest, line, saw)
            if len(events):
                yield (position, line), events
        self.fraction = 1.0

    def _parse(self, block: bytes, line: int, saw: int) -> tuple[Events, int, int]:
        """Parse whole lines, or the last line without newline: (events, number of lines, SAW_ZERO and SAW_MINUS flags so far)."""
        terminated = block.endswith(b"\n")
        whole = block if terminated or not block else block + b"\n"
        rows = whole.count(b"\n")
        t, x, y, p = new_columns(rows)
        assert self.layout.columns
        assert self.layout.time_unit
        kinds = np.array([FIELDS[column] for column in self.layout.columns], np.int64)
        exponent = MICROSECONDS_EXPONENT[self.layout.time_unit]
        text = np.frombuffer(whole, np.uint8)
        count, lines, status, place, column, now = decimals.parse_lines(text, kinds, exponent, t, x, y, p)
        saw |= now
        if status != decimals.FINE:
            found = SEPARATOR.split(whole[place:].split(b"\n", 1)[0][:200].decode("latin-1").strip())[0]
            unfinished = status in (decimals.NOT_A_NUMBER, decimals.EMPTY) and not any(mark in whole[place:-1] for mark in b" \t,;")
            if terminated or not (status == decimals.TOO_FEW or unfinished):
                raise InputError(f"{self.path}: line {line + lines}: {self._explain(status, column, found)}")
            self.note(f"line {line + lines}, the last one, is cut off and left out ({_show(block)})")
        if saw == decimals.SAW_ZERO | decimals.SAW_MINUS:
            raise InputError(f"{self.path}: polarity is -1, 0 and 1 by line {line + lines}; expected {POLARITIES}; {MEND_POLARITY}")
        return Events(t[:count], x[:count], y[:count], p[:count], self.width, self.height), lines, saw

    def _explain(self, status: int, column: int, found: str) -> str:
        assert self.layout.columns
        expected = len(self.layout.columns)
        if status == decimals.TOO_FEW:
            text = f"{column} fields, expected {expected} ({' '.join(self.layout.columns)})"
        elif status == decimals.TOO_MANY:
            text = f"more than {expected} fields ({' '.join(self.layout.columns)}), found {_show(found)} after them"
        else:
            name = self.layout.columns[column]
            whole = {"t": "a time within 3,000 years", "p": f"{POLARITIES}; {MEND_POLARITY}"}.get(name, "a whole number from 0 to 65535")
            text = f"{name} is {'empty' if status == decimals.EMPTY else _show(found)}, expected {whole}"
        return text + ("; the columns were inferred: state them with columns, for example columns='t x y p'" if self.layout.guessed else "")


def read_layout(path: Path, columns: tuple[str, ...] | None, time_unit: str | None) -> TextLayout:
    """Read comments, header and a sample of lines at the beginning of the file. Options take precedence."""
    layout = TextLayout(columns, time_unit)
    with path.open("rb") as file:
        block = file.read(BLOCK)
    if not block:
        raise InputError(f"{path}: is empty; expected lines of events")
    if len(block) == BLOCK and b"\n" not in block:
        raise InputError(f"{path}: line 1 is longer than {BLOCK >> 20} MB ({_show(block)}); expected one event a line")
    layout.start = 3 if block.startswith(b"\xef\xbb\xbf") else 0  # the byte order mark that some editors leave
    sample: list[list[str]] = []
    lines = block[layout.start :].split(b"\n")
    rest = lines.pop()  # without newline, perhaps cut off: used only if there is no other line
    for line in [*lines, rest] if rest and len(block) < BLOCK else lines:
        if line is rest and sample:
            break
        text = line.decode("latin-1").strip()
        if text and text[0] not in "#%":
            fields = SEPARATOR.split(text)
            if sample or not _is_preamble(path, layout, text):
                sample.append(fields)
        elif text and not sample:
            _read_comment(layout, text)
        if not sample:
            layout.start = min(layout.start + len(line) + 1, len(block))
            layout.line += 1
        if len(sample) == SAMPLE:
            break
    if not sample and len(block) == BLOCK:
        raise InputError(f"{path}: no event in the first {BLOCK >> 20} MB ({_show(block)}); expected lines of events")
    _infer(path, layout, sample)
    return layout


def _read_comment(layout: TextLayout, text: str) -> None:
    """A comment may state everything (written by write.py), the names of the columns, or the sensor size."""
    if text.startswith(OURS):
        stated = dict(re.findall(r"(columns|time_unit|width|height)=(\S+)", text))
        layout.columns = layout.columns or (parse_columns(stated["columns"]) if "columns" in stated else None)
        layout.time_unit = layout.time_unit or (check_unit(stated["time_unit"]) if "time_unit" in stated else None)
        sizes = [int(stated[name]) if re.fullmatch(r"\d{1,5}", stated.get(name, "")) else None for name in ("width", "height")]
        layout.width, layout.height = sizes
    elif match := re.search(r"geometry\s*[:=]?\s*(\d{1,5})\s*[,x ]\s*(\d{1,5})", text):
        layout.width, layout.height = int(match[1]), int(match[2])
    elif named := roles_of(_names(text.lstrip("#% \t"))):
        layout.columns, layout.time_unit = layout.columns or named[0], layout.time_unit or named[1]


def _is_preamble(path: Path, layout: TextLayout, text: str) -> bool:
    """Whether the first line that isn't a comment is a header with column names or the sensor size ("240 180")."""
    fields = SEPARATOR.split(text)
    if len(fields) == 2 and not layout.width and all(re.fullmatch(r"[1-9]\d{0,4}", number) for number in fields) and layout.line == 1:
        layout.width, layout.height = int(fields[0]), int(fields[1])
        layout.notes.append(f"the first line, {fields[0]} {fields[1]}, is taken for the sensor's width and height")
        return True
    if any(NUMERIC.fullmatch(name) for name in fields):
        return False
    named = roles_of(_names(text))
    if layout.columns is None and named is None:
        raise InputError(
            f"{path}: line {layout.line} ({_show(text)}) is neither an event nor a header that names t, x, y and p; "
            "state what the columns are, for example columns='t x y p'"
        )
    if named:
        layout.columns, layout.time_unit = layout.columns or named[0], layout.time_unit or named[1]
    else:
        layout.notes.append(f"line {layout.line} ({_show(text)}) is taken for a header and skipped")
    return True


def _infer(path: Path, layout: TextLayout, sample: list[list[str]]) -> None:
    """Infer columns and unit from the sample where they weren't stated, with notes."""
    if layout.columns is None and sample:
        rows = [[value for text in fields if (value := _number(text)) is not None] for fields in sample]
        if len(rows[0]) != len(sample[0]):
            raise InputError(
                f"{path}: line {layout.line} is {_show(' '.join(sample[0]))}; expected numbers, or state columns with _ for others"
            )
        layout.columns, note = infer_columns(list(zip(*(row for row in rows if len(row) == len(rows[0])), strict=True)), str(path))
        layout.guessed = True
        layout.notes.append(note)
    layout.columns = layout.columns or tuple(ROLES)
    if layout.time_unit is None and sample:
        place = layout.columns.index("t")
        times = [value for fields in sample if len(fields) > place and (value := _number(fields[place])) is not None]
        layout.time_unit, note = infer_unit(times, str(path))
        layout.notes.append(note)
    layout.time_unit = layout.time_unit or "us"


def _names(text: str) -> list[str]:
    """The fields of a header; names may contain blanks if separated by something else: "time [us], x, y, polarity"."""
    return re.split(r"[,;\t]" if re.search(r"[,;\t]", text) else r" +", text)


def _number(text: str) -> Decimal | None:
    """The value of a field of the sample; None if it isn't a finite number."""
    if text.lower() in ("true", "false"):
        return Decimal(text.lower() == "true")
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value.adjusted()) < 25 else None


def _show(found: str | bytes) -> str:
    """Shortened and escaped for an error message."""
    text = found.decode("latin-1") if isinstance(found, bytes) else found
    return repr(text if len(text) <= 40 else text[:40] + "...")
