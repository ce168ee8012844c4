"""`saccade detect`: weights + a recording -> boxes, as videos and files."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from tqdm import tqdm

from saccade.commands.options import ClockChoice, Device, From, RateOption, To
from saccade.commands.recordings import AS_STATED, AnySource, Reading, check_seconds, limits
from saccade.commands.simulate import size_of
from saccade.commands.weights import WeightsFile
from saccade.events.reader import Reader
from saccade.machine import check_extra, keep_freed_memory
from saccade.outputs.outputs import EXTRAS, Outputs, RunInfo, check_outputs, open_outputs
from saccade.pool import stop_signals
from saccade.representation.windows import WindowKind
from saccade.s3 import located
from saccade.sources.open import open_source, parse_source
from saccade.sources.source import Replay, Source
from saccade.types import Counts, Detections, Events, InputError, Stepping

if TYPE_CHECKING:
    from saccade.config import DetectorConfig
    from saccade.stream.stream import Stream
    from saccade.stream.tiles import Tiled

MinRate = Annotated[float | None, tyro.conf.arg(name="min-rate")]
MaxRate = Annotated[float | None, tyro.conf.arg(name="max-rate")]
log = logging.getLogger("saccade")
SMALL = 4096  # events that a fault may cost


def detect(
    weights: WeightsFile,
    recording: AnySource,
    *,
    rate_hz: RateOption = 20.0,
    min_rate_hz: MinRate = None,
    max_rate_hz: MaxRate = None,
    out: tuple[Path, ...] = (),
    start_s: From = None,
    end_s: To = None,
    clock: ClockChoice = "relative",
    classes: tuple[str, ...] = (),
    score: float | None = None,
    slow: float = 1.0,
    window: WindowKind = "sliding",
    stepping: Stepping = "direct",
    counts: Counts = "held",
    track: bool = True,
    fit: Literal["auto", "pad", "scale", "tile"] = "auto",
    size: str | None = None,
    runtime: Literal["auto", "torch", "onnxruntime", "openvino", "package"] = "auto",
    device: Device = "auto",
    threads: int = 0,
    trust: bool = False,
    faults: Literal["raise", "skip"] = "raise",
    overwrite: bool = False,
    opening: Reading = AS_STATED,
) -> None:
    """Find objects in a recording or live SOURCE at any rate: `saccade detect nano drive.raw --rate 200 --out boxes.mp4 boxes.jsonl`.

    Outputs, several at once: .mp4 (events, boxes, tracks, time), .jsonl (a line a frame), .csv (a line a box, usable as labels), .json
    (COCO), .npy (Prophesee), .mcap (Foxglove), .rrd (Rerun), and - for JSON lines to a pipe. Each is NAME.part.SUFFIX until it is whole:
    interrupted, killed or with a full disk the parts stay, and open up to there.

    A sensor of another size than in training needs no other weights. --fit pad shows it to the network pixel by pixel, scale scales its
    coordinates down into --size, or to as many pixels as the weights were trained on; tile cuts it into pieces of --size that overlap, each
    with a memory of its own, which takes as many times as long. Auto pads, and scales what is more than 1.2 times as large.

    A live source runs until it ends or Ctrl-C is pressed, which completes the files. If steps take too long, windows are merged.

    Args:
        rate_hz: Frames per second of event time.
        min_rate_hz: Let the rate follow the activity, down to this one; if only --max-rate is given, down to --rate.
        max_rate_hz: Let the rate follow the activity, up to this one; if only --min-rate is given, up to --rate.
        out: Files to write, kinds by suffix; if not given NAME_detected.mp4 and .jsonl in this folder.
        start_s: Begin so many seconds after the first event.
        end_s: End so many seconds after the first event.
        clock: Absolute: --from and --to are times of the recording's own clock, as `saccade info` prints them.
        classes: Only these.
        score: Only boxes of at least this score, 0 to 1, and of objects that are followed down to a third of it; if not given that of the
            weights, 0.3 where they say none.
        slow: Slow motion of the video, how many times. It shows 60 pictures a second at the most and leaves out the others.
        window: Sliding windows keep their length at any rate, disjoint ones are as long as the step.
        stepping: Which earlier state each frame continues from. Direct: the newest; interleaved: the one of a training window before.
        counts: Event counts of disjoint windows shorter than in training. Held: as if what they hold had gone on for so long.
        track: Give objects ids that last; --no-track leaves them out.
        fit: How a sensor of any size is shown to the network.
        size: Width x height: that the network knows; if not given that of its training (published: 304x240 or 640x360), or of its export.
        runtime: What computes the network. Auto: on a CPU onnxruntime, with torch where it can't; a file of `saccade export` by its kind.
        device: Where to compute; auto: the GPU if there is one.
        threads: CPU threads; 0 = one, or as many as there are cores where a step takes long and they are faster.
        trust: Open a .pt2 file, which can run any code of whoever wrote it as soon as it is opened; weights and .onnx can't.
        faults: At damage or a jump of time in the source, raise an error, or skip it and go on, after a jump with an empty memory.
        overwrite: Replace files that exist.
    """
    _check(rate_hz, score, slow, threads)
    check_seconds(start_s, end_s)
    highest_hz = _check_rates(rate_hz, min_rate_hz, max_rate_hz)
    known = None if size is None else size_of(size)
    source = parse_source(recording)
    file = located(source.place if source.kind == "file" else recording)
    paths = out or _standard(file.stem if source.kind == "file" else source.kind)
    check_outputs(paths, file, overwrite)
    from saccade.export.runtime import open_runtime
    from saccade.stream.adaptive import Adaptive
    from saccade.stream.stream import Stream
    from saccade.stream.tiles import open_stream
    from saccade.weights.load import find_weights

    weights_file = find_weights(weights)
    if source.kind != "file" and (start_s is not None or end_s is not None or fit == "tile"):
        raise InputError(f"{recording}: --from, --to and --fit tile are for recordings, whose length and sensor are known; leave them out")
    with opening.open(recording) if source.kind == "file" else open_source(recording, faults=faults) as opened_source:
        adaptive = None if min_rate_hz is None and max_rate_hz is None else Adaptive(min_rate_hz=min_rate_hz, max_rate_hz=max_rate_hz)
        opened = open_runtime(weights_file, runtime, device, threads or None, trust=trust)
        wanted = class_indices(classes, opened.config)
        options: dict[str, Any] = {
            "window": window, "stepping": stepping, "counts": counts, "tracker": track, "score": score, "adaptive": adaptive,
            "faults": faults, "pictures": True,
        }  # fmt: skip
        about: dict[str, Any] = {"classes": opened.config.classes, "rate_hz": highest_hz, "slow": slow}
        if not isinstance(opened_source, Reader):
            _run_live(Stream(opened, rate_hz, fit=fit, size=known, **options), opened_source, str(recording), about, paths, wanted)
            return
        reader = opened_source
        start_us, end_us = limits(reader, start_s, end_s, clock)
        stream = open_stream(opened, rate_hz, reader.width, reader.height, fit, known, **options)
        run = RunInfo(recording=file.name, width=reader.width, height=reader.height, start_us=start_us, end_us=end_us, **about)
        # Without limits a recording may be out of order; between limits that would be an error.
        events: Iterable[Events] = reader.stream(None if start_s is None else start_us, None if end_s is None else end_us)
        events = events if faults == "raise" else _small(events)
        events = events if source.speed is None else Replay(events, source.speed)
        _run(stream, stream.run(events), run, open_outputs(paths, run), wanted)


def _run_live(stream: "Stream", source: Source, name: str, about: dict[str, Any], paths: tuple[Path, ...], wanted: np.ndarray) -> None:
    """What the outputs must know of the sensor comes with the first answer."""
    answers = stream.run(source)
    first = next(answers, None)
    if first is None:
        raise InputError(f"{name}: ended before its first events, so there is nothing to detect")
    width, height = stream.sensor
    run = RunInfo(recording=name, width=width, height=height, start_us=first.time_us, end_us=None, **about)
    _run(stream, chain([first], answers), run, open_outputs(paths, run), wanted)
    log.warning("%s: %s", name, stream.counters)


def _small(portions: Iterable[Events]) -> Iterator[Events]:
    """A stream leaves a damaged portion out as a whole, and a file's portion may be minutes."""
    for events in portions:
        for first in range(0, len(events), SMALL):
            yield events[first : first + SMALL]


def _run(stream: "Stream | Tiled", answers: Iterable[Detections], run: RunInfo, outputs: Outputs, wanted: np.ndarray) -> None:
    keep_freed_memory()  # states and features of a step are as large as those of the one before
    frames, boxes, tracks, began_s, time_us = 0, Counter[int](), dict[int, int](), time.perf_counter(), run.start_us
    try:
        with stop_signals() as asked, outputs, _bar(run) as bar:
            for found in answers:
                shown = found[np.isin(found.classes, wanted)]
                outputs.write(shown, stream.picture if outputs.wants_frames else None)
                frames, time_us = frames + 1, found.time_us
                boxes.update(shown.classes.tolist())
                tracks |= {} if shown.tracks is None else dict(zip(shown.tracks.tolist(), shown.classes.tolist(), strict=True))
                bar.update((found.time_us - run.start_us) / 1e6 - bar.n)
                if asked:  # between two frames: every output has the same ones
                    if run.end_us is None:  # a live source has no other end
                        break
                    raise KeyboardInterrupt
            if not frames and run.end_us is not None:
                here = f"from {run.start_us / 1e6:.6f} to {run.end_us / 1e6:.6f} s of its clock"
                raise InputError(f"{run.recording}: has no events {here}, so there is nothing to detect; choose another --from and --to")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_left(outputs, time_us)) from None
    except InputError as error:
        if not frames:  # it couldn't begin
            outputs.discard()
            raise
        raise InputError(f"{error}; {_left(outputs, time_us)}") from error
    seconds = time.perf_counter() - began_s
    speed = ((time_us if run.end_us is None else run.end_us) - run.start_us) / 1e6 / seconds
    files = [output.path for output in outputs.outputs if str(output.path) != "-"]
    where = sys.stdout if len(files) == len(outputs.outputs) else sys.stderr  # a pipe gets JSON lines only
    rate = f"{'up to ' if stream.adaptive else ''}{run.rate_hz:g} Hz"
    tracks.pop(-1, None)  # of boxes that no track has taken yet
    followed = f"{len(tracks):,} tracks{_by_class(Counter(tracks.values()), run.classes)}, " if tracks else ""
    found_boxes = f"{boxes.total():,} boxes{'' if tracks else _by_class(boxes, run.classes)}"
    print(f"{frames:,} frames at {rate}, {found_boxes}, {followed}{speed:.2g} x real time", file=where)
    for path in files:
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", file=where)


def _by_class(counts: Counter[int], classes: Sequence[str]) -> str:
    return f" ({', '.join(f'{classes[index]} {count:,}' for index, count in counts.most_common())})" if counts else ""


def class_indices(names: tuple[str, ...], config: "DetectorConfig") -> np.ndarray:
    """Of the chosen classes; of all if none is chosen."""
    chosen = {name.casefold() for name in names}
    unknown = chosen - {name.casefold() for name in config.classes}
    if unknown:
        raise InputError(f"--classes {' '.join(sorted(unknown))}: not of {config.name}; it knows {', '.join(config.classes)}")
    return np.array([index for index, name in enumerate(config.classes) if name.casefold() in chosen or not chosen])


def _standard(name: str) -> tuple[Path, ...]:
    video, lines = (Path(f"{name}_detected{suffix}") for suffix in (".mp4", ".jsonl"))
    try:
        check_extra(video, *EXTRAS[".mp4"])
    except InputError as error:
        log.warning("%s; without it only %s is written", error, lines)
        return (lines,)
    return (video, lines)


def _check(rate_hz: float, score: float | None, slow: float, threads: int) -> None:
    for name, value in (("rate", rate_hz), ("slow", slow)):
        if not 0 < value < float("inf"):
            raise InputError(f"--{name} {value}: expected a number above 0")
    if score is not None and not 0 <= score <= 1:
        raise InputError(f"--score {score}: expected 0 to 1")
    if threads < 0:
        raise InputError(f"--threads {threads}: expected 1 or more, or 0 to leave the choice to the runtime")


def _check_rates(rate_hz: float, min_rate_hz: float | None, max_rate_hz: float | None) -> float:
    """The highest of the run."""
    lowest_hz, highest_hz = (rate_hz if limit_hz is None else limit_hz for limit_hz in (min_rate_hz, max_rate_hz))
    if not 0 < lowest_hz <= highest_hz < float("inf"):
        raise InputError(f"--min-rate {lowest_hz:g} --max-rate {highest_hz:g}: expected numbers above 0, the lower one first")
    return highest_hz


def _left(outputs: Outputs, time_us: int) -> str:
    names = ", ".join(map(str, outputs.parts))
    return f"what was detected until {time_us / 1e6:.3f} s is in {names}" if names else "nothing was left half-written"


@contextmanager
def _bar(run: RunInfo) -> Iterator[tqdm]:
    shape = "{desc} {percentage:3.0f} %|{bar}| {n:,.2f} of {total:,.2f} s [{elapsed} < {remaining}]"
    total = None if run.end_us is None else (run.end_us - run.start_us) / 1e6
    shape = shape if total is not None else "{desc} {n:,.2f} s [{elapsed}]"
    with tqdm(total=total, desc=f"detecting at {run.rate_hz:g} Hz", bar_format=shape, leave=False, disable=None) as bar:
        yield bar
