"""RECORDING -> what it holds, another format: `saccade info | convert`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from saccade.commands.options import ClockChoice, From, To
from saccade.events import mend
from saccade.events.reader import LATEST_US, Reader
from saccade.events.statistics import Statistics, measure, sparkline
from saccade.events.write import check_target, write_events
from saccade.s3 import located
from saccade.sources.open import open_recording, parse_source, recorded
from saccade.types import Events, InputError

Recording = Annotated[
    str | Path,  # text first: as a path, tcp://HOST would lose a slash
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RECORDING", help="Event recording: DAT, RAW, HDF5, AEDAT4, ROS bag, ES, npz, csv, ..., or `street`, a sample."),
]
AnySource = Annotated[
    str | Path,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="SOURCE",
        help="A recording, drive.raw, or drive.raw@1 at its own speed; -, tcp://127.0.0.1:7700, udp://127.0.0.1:7700, camera:, "
        "ros2:/event_camera/events, sim:7.",
    ),
]
LEAST, MOST = 1e-6, 1e9  # of rates, windows and slow motion: numbers beyond are mistakes, and overflow
OutFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT", help="File to write.")]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a recording's file may not state."""

    width: int | None = None
    """Width of the sensor in pixels."""
    height: int | None = None
    """Height of the sensor in pixels."""
    columns: str | None = None
    """Order of the columns of an npz, csv or txt file, e.g. "t x y p"; _ skips a column."""
    time_unit: Literal["us", "ns", "ms", "s"] | None = None
    """Unit of the times of an npz, csv, txt or HDF5 file."""
    topic: str | None = None
    """Topic of a ROS bag that has several with events."""
    index: Path | None = None
    """File for the time index, instead of one in the cache folder."""

    def open(self, name: Path | str) -> Reader:
        return open_recording(name, **vars(self))

    def recorded(self, name: Path | str, seconds: float) -> AbstractContextManager[Reader]:
        """Of a live source what comes within SECONDS."""
        return recorded(name, seconds, **vars(self))


Reading = Annotated[Opening, tyro.conf.arg(name="")]
AS_STATED = Opening()


@contextmanager
def _progress(reader: Reader, what: str) -> Iterator[Iterator[Events]]:
    """The reader's chunks, with a progress bar (on a terminal) that shows the fraction of the file read."""
    layout = "{desc} {percentage:3.0f} %|{bar}| {elapsed} < {remaining}"
    with tqdm(total=1.0, desc=what, bar_format=layout, leave=False, disable=None) as bar:

        def chunks() -> Iterator[Events]:
            for events in reader:
                bar.update(reader.fraction - bar.n)
                yield events

        yield chunks()


def info(recording: AnySource, *, seconds: float = 5.0, opening: Reading = AS_STATED) -> None:
    """Print what a recording holds (format, sensor, events, duration, rate over time, polarity) and what is wrong with it.

    Times are of the recording's own clock. --from and --to of other commands count from its first event, unless --clock is absolute.

    Args:
        seconds: How long a live source is listened to.
    """
    with opening.recorded(recording, seconds) as reader:
        with _progress(reader, "reading") as chunks:
            statistics = measure(chunks, width=reader.width, height=reader.height)
        print(_report(reader, statistics, recording))


def convert(
    recording: Recording,
    out: OutFile,
    *,
    sort: bool = False,
    drop_duplicates: bool = False,
    clip_to_sensor: bool = False,
    start_at_zero: bool = False,
    start_s: From = None,
    end_s: To = None,
    clock: ClockChoice = "relative",
    overwrite: bool = False,
    opening: Reading = AS_STATED,
) -> None:
    """Write RECORDING to OUT: .h5 (DSEC's layout), .dat, .npz or .csv. OUT appears when it is complete, never half-written.

    Args:
        sort: Sort the events by time, in bounded memory.
        drop_duplicates: Remove events with the same time, pixel and polarity as an earlier one.
        clip_to_sensor: Remove events outside the sensor.
        start_at_zero: Subtract the time of the first event from all times.
        start_s: Begin so many seconds after the first event.
        end_s: End so many seconds after the first event.
        clock: Absolute: --from and --to are times of the recording's own clock, as `saccade info` prints them.
        overwrite: Replace files that exist.
    """
    check_target(out, located(recording), overwrite)
    check_seconds(start_s, end_s)
    with opening.open(recording) as reader, _progress(reader, "converting") as chunks:
        mended = mend.Mended()
        events: Iterator[Events] = chunks
        if start_s is not None or end_s is not None:  # else a recording may be empty, or out of order and to be sorted
            start_us, end_us = limits(reader, start_s, end_s, clock)
            events = reader.stream(None if start_s is None else start_us, None if end_s is None else end_us)
        if clip_to_sensor:
            events = mend.clip_to_sensor(events, mended)
        if sort:
            events = mend.sort(events, mended, folder=out.parent)
        if drop_duplicates:
            events = mend.drop_duplicates(events, mended)
        if start_at_zero:
            events = mend.start_at_zero(events, mended)
        count = write_events(events, out, width=reader.width, height=reader.height, source_path=reader.path, overwrite=overwrite)
    for line in _report_mended(mended):
        print(line)
    print(f"{out}: {count:,} events, {out.stat().st_size / 1e6:.1f} MB")


def check_seconds(start_s: float | None, end_s: float | None) -> None:
    if not all(abs(limit) * 1e6 < LATEST_US for limit in (start_s, end_s) if limit is not None):
        raise InputError(f"--from {start_s} --to {end_s}: expected seconds, such as 0.5")


def limits(reader: Reader, start_s: float | None, end_s: float | None, clock: ClockChoice) -> tuple[int, int]:
    """What --from, --to and --clock choose of a recording: [start_us, end_us) of its own clock, cut to its first and last event."""
    zero_us = reader.start_us if clock == "relative" else 0
    start_us = reader.start_us if start_s is None else max(zero_us + round(start_s * 1e6), reader.start_us)
    end_us = reader.end_us if end_s is None else min(zero_us + round(end_s * 1e6), reader.end_us)
    if not reader.count:
        raise InputError(f"{reader.path}: holds no events; choose another recording")
    if start_s is None and end_s is None and start_us >= end_us:
        raise InputError(
            f"{reader.path}: time runs backwards, its last event is before its first; "
            f"repair it with `saccade convert {reader.path} sorted.h5 --sort`"
        )
    if start_us >= end_us:
        first_s, last_s = reader.start_us / 1e6, reader.end_us / 1e6
        here = f"they count from the first event, and the recording is {last_s - first_s:.6f} s long; for times of its own clock, "
        here += f"{first_s:.6f} to {last_s:.6f} s, add --clock absolute"
        if clock == "absolute":
            here = (
                f"the recording's clock goes from {first_s:.6f} to {last_s:.6f} s; without --clock absolute they count from the first event"
            )
        raise InputError(f"{reader.path}: nothing between --from and --to; {here}")
    return start_us, end_us


def called(reader: Reader, name: Path | str) -> str:
    """The file's name, or that of the live source."""
    return reader.path.name if parse_source(name).kind == "file" else str(name)


def _report(reader: Reader, s: Statistics, name: Path | str) -> str:
    """The text of `saccade info`: file, sensor, events, rates, and a line per problem."""
    pixels = s.width * s.height
    is_file = parse_source(name).kind == "file"
    about = [("file", f"{reader.path}, {reader.path.stat().st_size / 1e6:,.1f} MB"), ("format", reader.format)]
    lines = [
        *(about if is_file else [("source", f"{name}, a part of it")]),
        ("sensor", f"{s.width} x {s.height} pixels"),
        ("events", f"{s.count:,}"),
    ]
    if s.count:
        share = s.positive / s.count * 100
        lines += [
            ("time", f"{s.start_us / 1e6:.6f} to {s.end_us / 1e6:.6f} s, {s.duration_us / 1e6:.6f} s long"),
            ("rate", f"{_rate(s.mean_rate)} on average, {_rate(s.peak_rate)} at the peak"),
            ("", f"{sparkline(s.rates)}  {_time(s.bar_us)} a bar"),
            ("polarity", f"{share:.1f} % brighter, {100 - share:.1f} % darker"),
            ("pixels", f"{s.active_pixels / pixels * 100:.1f} % active{_hot(s)}"),
        ]
    text = "\n".join(f"{name:9}{value}" for name, value in lines)
    return "\n".join([text, *(f"warning: {warning}" for warning in s.warnings(reader.path if is_file else str(name)))])


def _report_mended(mended: mend.Mended) -> list[str]:
    """One line per kind of repair that `saccade convert` made."""
    done = {
        "events came after one of a later time and were moved": mended.late,
        "events equal to one before were left out": mended.duplicates,
        "events outside the sensor were left out": mended.outside,
        "us were subtracted from every time": mended.shift_us,
    }
    return [f"{number:,} {what}" for what, number in done.items() if number]


def _hot(s: Statistics) -> str:
    return f", {s.hot_pixels} hot with {s.hot_events / s.count * 100:.1f} % of the events" if s.hot_pixels else ""


def _rate(events_per_second: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if events_per_second >= size:
            return f"{events_per_second / size:.2f} {unit} events/s"
    return f"{events_per_second:.1f} events/s"


def _time(microseconds: int) -> str:
    for size, unit in ((1_000_000, "s"), (1_000, "ms")):
        if microseconds >= size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds} us"
