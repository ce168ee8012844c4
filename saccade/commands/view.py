"""`saccade view`: a recording -> pictures of its frames, at several rates, with what weights find in them."""

from pathlib import Path

from tqdm import tqdm

from saccade.commands.options import ClockChoice, From, RateOption, To
from saccade.commands.recordings import AS_STATED, LEAST, MOST, AnySource, OutFile, Reading, called, check_seconds, limits
from saccade.events.reader import Reader
from saccade.machine import check_extra
from saccade.outputs.picture import BoxMark, LargePicture, boxed_picture, class_marks, colours
from saccade.outputs.sheet import middles, spread_frames, write_pictures, write_sheet
from saccade.outputs.video import FASTEST_FPS, write_video
from saccade.representation.frames import frames
from saccade.representation.windows import WindowKind
from saccade.types import InputError

FRAMES, INSTANTS = 8, 4  # of a sheet of one rate, and of each of several


def view(
    recording: AnySource,
    out: OutFile,
    *,
    rate_hz: RateOption = 20.0,
    rates: tuple[float, ...] = (),
    weights: str | None = None,
    window: WindowKind = "sliding",
    window_ms: float = 50.0,
    start_s: From = None,
    end_s: To = None,
    clock: ClockChoice = "relative",
    slow: float = 1.0,
    seconds: float = 5.0,
    overwrite: bool = False,
    opening: Reading = AS_STATED,
) -> None:
    """Draw the frames that a detector would see: OUT is a .png (eight frames spread over the recording) or an .mp4.

    With --weights a .png shows what they find at these instants, after all that came before; with --rates each rate has a row of its own:
    `saccade view zurich_city_04_a found.png --weights nano --rates 20 50 200`.

    Args:
        rate_hz: Frames per second of event time.
        rates: Several of them for a .png, one below the other at the same instants, as `20 200` or `20,200`.
        weights: Weights file, or a name that comes with saccade, whose boxes are drawn.
        window: Sliding windows keep their length at any rate, disjoint ones are as long as the step.
        window_ms: Length of a sliding window; with --weights it is theirs.
        start_s: Begin so many seconds after the first event.
        end_s: End so many seconds after the first event.
        clock: Absolute: --from and --to are times of the recording's own clock, as `saccade info` prints them.
        slow: Slow motion of the video, how many times. It shows at most 60 frames per second, so 200 Hz is slowed down at least 3.3 times.
        seconds: How long a live source is listened to.
        overwrite: Replace files that exist.
    """
    suffix = out.suffix.lower()
    if suffix not in (".png", ".mp4"):
        raise InputError(f"{out}: unknown suffix {out.suffix!r}; expected .png or .mp4")
    if suffix == ".mp4":
        check_extra(out, "av", "video")
    if suffix == ".mp4" and (weights or rates):
        raise InputError(f"{out}: --weights and --rates are for a .png; `saccade detect` writes videos with boxes, one rate each")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; give another name, or --overwrite to replace it")
    for name, value in (("rate", rate_hz), *(("rates", one) for one in rates), ("window-ms", window_ms), ("slow", slow)):
        if not LEAST <= value <= MOST:
            raise InputError(f"--{name} {value}: expected a number above 0, from {LEAST:g} to {MOST:g}")
    check_seconds(start_s, end_s)
    with opening.recorded(recording, seconds) as reader:
        start_us, end_us = limits(reader, start_s, end_s, clock)
        if suffix == ".png" and (weights or rates):
            _write_rows(out, reader, rates or (rate_hz,), weights, start_us, end_us, window, round(window_ms * 1000))
            return
        if suffix == ".png":
            chosen = spread_frames(reader, FRAMES, start_us, end_us, rate_hz, window, round(window_ms * 1000))
            write_sheet(out, chosen, f"{called(reader, recording)} at {rate_hz:g} Hz, {window} windows")
            print(f"{out}: {len(chosen)} frames")
            return
        pictures = frames(reader.stream(start_us, end_us), rate_hz, window, round(window_ms * 1000), reuse=True)
        total = round((end_us - start_us) * 1e-6 * rate_hz)
        shown_hz = min(rate_hz / slow, FASTEST_FPS)
        bar = tqdm(pictures, desc="drawing", unit=" frames", leave=False, total=total, disable=None)
        count = write_video(out, iter(bar), shown_hz)
        print(f"{out}: {count} frames, shown {rate_hz / shown_hz:.3g} times slower than real")


def _write_rows(
    out: Path, reader: Reader, rates: tuple[float, ...], weights: str | None, start_us: int, end_us: int, window: WindowKind, window_us: int
) -> None:
    """A row of pictures for each rate."""
    rows: list[tuple[str, LargePicture]] = []
    for rate_hz in rates:
        if weights is None:
            chosen = spread_frames(reader, INSTANTS, start_us, end_us, rate_hz, window, window_us)
            row = [(frame.end_us, boxed_picture(colours(frame.data), [])) for frame in chosen]
        else:
            row = _found(reader, rate_hz, weights, start_us, end_us, window)
        if len(row) < INSTANTS:
            raise InputError(f"{out}: at {rate_hz:g} Hz {reader.path} has fewer than {INSTANTS} frames there; choose more of it")
        rows += [(f"{rate_hz:g} Hz, {time_us / 1e6:.3f} s", picture) for time_us, picture in row]
    said = f"{reader.path.name}, {window} windows" + (f", {Path(weights).name}" if weights else "")
    write_pictures(out, rows, said, across=INSTANTS)
    print(f"{out}: {len(rows)} pictures at {', '.join(f'{rate:g}' for rate in rates)} Hz")


def _found(reader: Reader, rate_hz: float, weights: str, start_us: int, end_us: int, window: WindowKind) -> list[tuple[int, LargePicture]]:
    """What the weights find in the last frame before each instant, in one stream from the start on."""
    from saccade.stream.stream import Stream

    stream = Stream(weights, rate_hz, width=reader.width, height=reader.height, window=window, pictures=True)
    waiting = middles(INSTANTS, start_us, end_us)
    row: list[tuple[int, LargePicture]] = []
    for found in stream.run(reader.stream(start_us, end_us)):
        if waiting and found.time_us + 1e6 / rate_hz > waiting[0]:
            marks: list[BoxMark] = class_marks(found.boxes, found.classes, stream.classes)
            row.append((found.time_us, boxed_picture(colours(stream.picture()), marks)))
            waiting = waiting[1:]
        if not waiting:
            break
    return row
