"""RECORDING -> what it holds, another format, pictures: `saccade info | convert | view`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from saccade.events import mend
from saccade.events.open import open_events
from saccade.events.reader import Reader
from saccade.events.report import report, report_mended
from saccade.events.statistics import measure
from saccade.events.write import check_target, write_events
from saccade.outputs.picture import spread, write_sheet
from saccade.outputs.video import FASTEST_FPS, write_video
from saccade.representation.frames import frames
from saccade.types import Events, InputError

Recording = Annotated[
    Path, tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING", help="Any event recording: DAT, RAW, HDF5, AEDAT4, ...")
]
Output = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT", help="File to write.")]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How to read a recording whose file doesn't say it all."""

    width: int | None = None
    """Columns of the sensor."""
    height: int | None = None
    """Rows of the sensor."""
    columns: str | None = None
    """Order of the columns of an npz, csv or txt file, e.g. "t x y p"; _ skips one."""
    time_unit: Literal["us", "ns", "ms", "s"] | None = None
    """Unit of the times of an npz, csv, txt or HDF5 file."""
    topic: str | None = None
    """Topic of a ROS bag that has several with events."""
    index: Path | None = None
    """Where to keep the index of times, instead of the cache folder."""

    def open(self, path: Path) -> Reader:
        return open_events(
            path,
            width=self.width,
            height=self.height,
            columns=self.columns,
            time_unit=self.time_unit,
            topic=self.topic,
            index=self.index,
        )


Reading = Annotated[Opening, tyro.conf.arg(name="")]
AS_STATED = Opening()


@contextmanager
def _progress(reader: Reader, what: str) -> Iterator[Iterator[Events]]:
    """The reader's chunks, under a bar (on a terminal) that follows how much of the file has been read."""
    layout = "{desc} {percentage:3.0f} %|{bar}| {elapsed} < {remaining}"
    with tqdm(total=1.0, desc=what, bar_format=layout, leave=False, disable=None) as bar:

        def chunks() -> Iterator[Events]:
            for events in reader:
                bar.update(reader.fraction - bar.n)
                yield events

        yield chunks()


def info(recording: Recording, *, opening: Reading = AS_STATED) -> None:
    """Print what RECORDING holds (format, sensor, events, duration, rate over time, polarity) and what is wrong with it."""
    with opening.open(recording) as reader:
        with _progress(reader, "reading") as chunks:
            statistics = measure(chunks, width=reader.width, height=reader.height)
        print(report(reader, statistics))


def convert(
    recording: Recording,
    out: Output,
    *,
    sort: bool = False,
    drop_duplicates: bool = False,
    clip_to_sensor: bool = False,
    start_at_zero: bool = False,
    overwrite: bool = False,
    opening: Reading = AS_STATED,
) -> None:
    """Write RECORDING to OUT: .h5 (DSEC's layout), .dat, .npz or .csv. OUT appears when it is complete, never half-written.

    Args:
        sort: Put the events in the order of time; works in bounded memory.
        drop_duplicates: Leave out events equal in time, place and polarity to one before.
        clip_to_sensor: Leave out events outside the sensor.
        start_at_zero: Subtract the time of the first event from all.
        overwrite: Replace OUT if it exists.
    """
    check_target(out, recording, overwrite)
    with opening.open(recording) as reader, _progress(reader, "converting") as chunks:
        mended = mend.Mended()
        events: Iterator[Events] = chunks
        if clip_to_sensor:
            events = mend.clip_to_sensor(events, mended)
        if sort:
            events = mend.sort(events, mended, folder=out.parent)
        if drop_duplicates:
            events = mend.drop_duplicates(events, mended)
        if start_at_zero:
            events = mend.start_at_zero(events, mended)
        count = write_events(events, out, width=reader.width, height=reader.height, source_path=recording, overwrite=overwrite)
    for line in report_mended(mended):
        print(line)
    print(f"{out}: {count:,} events, {out.stat().st_size / 1e6:.1f} MB")


def view(
    recording: Recording,
    out: Output,
    *,
    rate_hz: float = 20.0,
    window_ms: float = 50.0,
    kind: Literal["sliding", "disjoint"] = "sliding",
    start_s: float | None = None,
    end_s: float | None = None,
    slow: float = 1.0,
    overwrite: bool = False,
    opening: Reading = AS_STATED,
) -> None:
    """Show the frames that a detector would see: OUT is a .png (a sheet of eight, spread over the recording) or an .mp4.

    Args:
        rate_hz: Frames per second of event time.
        window_ms: Length of a sliding window.
        kind: Sliding windows keep their length at any rate, disjoint ones are as long as the step.
        start_s: Begin at this time of the recording, in seconds as `saccade info` prints them.
        end_s: End at this time.
        slow: Slow motion, how many times. A video shows 60 pictures a second at the most, so 200 Hz are at least 3.3 times slower.
        overwrite: Replace OUT if it exists.
    """
    if out.suffix.lower() not in (".png", ".mp4"):
        raise InputError(f"{out}: unknown suffix {out.suffix!r}; expected .png or .mp4")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; give another name, or --overwrite to replace it")
    for name, value in (("rate-hz", rate_hz), ("window-ms", window_ms), ("slow", slow)):
        if not 0 < value < float("inf"):
            raise InputError(f"--{name} {value}: expected a number above 0")
    if not all(isfinite(limit) for limit in (start_s, end_s) if limit is not None):
        raise InputError(f"--start-s {start_s} --end-s {end_s}: expected seconds, as `saccade info` prints them")
    with opening.open(recording) as reader:
        start_us = reader.start_us if start_s is None else round(start_s * 1e6)
        end_us = reader.end_us if end_s is None else round(end_s * 1e6)
        if out.suffix.lower() == ".png":
            chosen = spread(reader, 8, start_us, end_us, rate_hz, kind, round(window_ms * 1000))
            write_sheet(out, chosen, f"{recording.name} at {rate_hz:g} Hz, {kind} windows")
            print(f"{out}: {len(chosen)} frames")
            return
        pictures = frames(reader.stream(start_us, end_us), rate_hz, kind, round(window_ms * 1000), reuse=True)
        total = round((end_us - start_us) * 1e-6 * rate_hz)
        shown_hz = min(rate_hz / slow, FASTEST_FPS)
        bar = tqdm(pictures, desc="drawing", unit=" frames", leave=False, total=total, disable=None)
        count = write_video(out, iter(bar), shown_hz)
        print(f"{out}: {count} frames, shown {rate_hz / shown_hz:.3g} times slower than real")
