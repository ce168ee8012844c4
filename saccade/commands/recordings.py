"""RECORDING -> what it holds, another format, pictures: `saccade info | convert | view`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from saccade.commands.options import ClockChoice, From, RateOption, To
from saccade.events import mend
from saccade.events.reader import LATEST_US, Reader
from saccade.events.statistics import Statistics, measure, sparkline
from saccade.events.write import check_target, write_events
from saccade.machine import check_extra
from saccade.outputs.sheet import spread_frames, write_sheet
from saccade.outputs.video import FASTEST_FPS, write_video
from saccade.representation.frames import frames
from saccade.representation.windows import WindowKind
from saccade.s3 import located
from saccade.sources.open import open_recording
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
        help="A recording, drive.raw, or drive.raw@1 at its own speed; -, tcp://127.0.0.1:7700, udp://127.0.0.1:7700, camera:, sim:7.",
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
        return open_recording(
            name,
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
    """The reader's chunks, with a progress bar (on a terminal) that shows the fraction of the file read."""
    layout = "{desc} {percentage:3.0f} %|{bar}| {elapsed} < {remaining}"
    with tqdm(total=1.0, desc=what, bar_format=layout, leave=False, disable=None) as bar:

        def chunks() -> Iterator[Events]:
            for events in reader:
                bar.update(reader.fraction - bar.n)
                yield events

        yield chunks()


def info(recording: Recording, *, opening: Reading = AS_STATED) -> None:
    """Print what RECORDING holds (format, sensor, events, duration, rate over time, polarity) and what is wrong with it.

    Times are of the recording's own clock. --from and --to of other commands count from its first event, unless --clock is absolute.
    """
    with opening.open(recording) as reader:
        with _progress(reader, "reading") as chunks:
            statistics = measure(chunks, width=reader.width, height=reader.height)
        print(_report(reader, statistics))


def convert(
    recording: Recording,
    out: OutFile,
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
        sort: Sort the events by time, in bounded memory.
        drop_duplicates: Remove events with the same time, pixel and polarity as an earlier one.
        clip_to_sensor: Remove events outside the sensor.
        start_at_zero: Subtract the time of the first event from all times.
        overwrite: Replace files that exist.
    """
    check_target(out, located(recording), overwrite)
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
        count = write_events(events, out, width=reader.width, height=reader.height, source_path=reader.path, overwrite=overwrite)
    for line in _report_mended(mended):
        print(line)
    print(f"{out}: {count:,} events, {out.stat().st_size / 1e6:.1f} MB")


def view(
    recording: Recording,
    out: OutFile,
    *,
    rate_hz: RateOption = 20.0,
    window: WindowKind = "sliding",
    window_ms: float = 50.0,
    start_s: From = None,
    end_s: To = None,
    clock: ClockChoice = "relative",
    slow: float = 1.0,
    overwrite: bool = False,
    opening: Reading = AS_STATED,
) -> None:
    """Draw the frames that a detector would see: OUT is a .png (eight frames spread over the recording) or an .mp4.

    Args:
        rate_hz: Frames per second of event time.
        window: Sliding windows keep their length at any rate, disjoint ones are as long as the step.
        window_ms: Length of a sliding window.
        start_s: Begin so many seconds after the first event.
        end_s: End so many seconds after the first event.
        clock: Absolute: --from and --to are times of the recording's own clock, as `saccade info` prints them.
        slow: Slow motion of the video, how many times. It shows at most 60 frames per second, so 200 Hz is slowed down at least 3.3 times.
        overwrite: Replace files that exist.
    """
    if out.suffix.lower() not in (".png", ".mp4"):
        raise InputError(f"{out}: unknown suffix {out.suffix!r}; expected .png or .mp4")
    if out.suffix.lower() == ".mp4":
        check_extra(out, "av", "video")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; give another name, or --overwrite to replace it")
    for name, value in (("rate", rate_hz), ("window-ms", window_ms), ("slow", slow)):
        if not LEAST <= value <= MOST:
            raise InputError(f"--{name} {value}: expected a number above 0, from {LEAST:g} to {MOST:g}")
    check_seconds(start_s, end_s)
    with opening.open(recording) as reader:
        start_us, end_us = limits(reader, start_s, end_s, clock)
        if out.suffix.lower() == ".png":
            chosen = spread_frames(reader, 8, start_us, end_us, rate_hz, window, round(window_ms * 1000))
            write_sheet(out, chosen, f"{reader.path.name} at {rate_hz:g} Hz, {window} windows")
            print(f"{out}: {len(chosen)} frames")
            return
        pictures = frames(reader.stream(start_us, end_us), rate_hz, window, round(window_ms * 1000), reuse=True)
        total = round((end_us - start_us) * 1e-6 * rate_hz)
        shown_hz = min(rate_hz / slow, FASTEST_FPS)
        bar = tqdm(pictures, desc="drawing", unit=" frames", leave=False, total=total, disable=None)
        count = write_video(out, iter(bar), shown_hz)
        print(f"{out}: {count} frames, shown {rate_hz / shown_hz:.3g} times slower than real")


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


def _report(reader: Reader, s: Statistics) -> str:
    """The text of `saccade info`: file, sensor, events, rates, and a line per problem."""
    pixels = s.width * s.height
    lines = [
        ("file", f"{reader.path}, {reader.path.stat().st_size / 1e6:,.1f} MB"),
        ("format", reader.format),
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
    return "\n".join([text, *(f"warning: {warning}" for warning in s.warnings(reader.path))])


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
