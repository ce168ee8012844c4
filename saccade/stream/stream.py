"""EVENTS -> DETECTIONS, live and at any rate: `saccade.Stream`."""

import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import nan
from pathlib import Path
from typing import Any, get_args

from saccade.detection.decode import Decoding, decode_rows
from saccade.detection.track import Tracker
from saccade.export.runtime import Runtime, RuntimeName, open_runtime
from saccade.model.detector import Detector
from saccade.model.stepping import History
from saccade.representation.canvas import Canvas
from saccade.representation.histogram import Histogram
from saccade.representation.windows import KINDS, Grid, Rate, WindowBuffer, WindowKind
from saccade.stream.adaptive import Adaptive, pace_of
from saccade.stream.counters import Counters, CountersUnderWay
from saccade.stream.engine import Engine
from saccade.stream.familiar import Familiar
from saccade.stream.fit import Fit, Size, canvas_for, fixed_size
from saccade.stream.intake import Intake, Timing
from saccade.stream.live import Feed, LiveSettings, Overload, Silence
from saccade.stream.shown import Shown
from saccade.types import Counts, Detections, Events, Faults, InputError, Stepping, Window


class Stream:
    """A detector that is fed with events as they come and answers at RATE_HZ; each answer is of the end of a window.

    stream = saccade.Stream("nano", rate_hz=200)
    for detections in stream.run("drive.raw"): ...        # or: stream.push(events), in any portions

    The memory steps by the true time between the windows that are run, whatever was merged, left out or late. Between events the output
    goes on at its rate. Memory: direct stepping keeps one state; interleaved those of the last window, rate x window (10 at 200 Hz); a
    state of s5-vit-b at 304 x 240 is 5 MB (`memory_bytes`); and the events of one window.

    detector: a Detector, a weights file or name, a file that `saccade export` wrote, or a Runtime.
    score: least score of a box, None: that of the weights. tracker: gives ids to what is followed, and shows it down to a third of the
    least score; False: neither.
    fit: a sensor of another size than SIZE, which is that of the training, is padded, scaled down or, auto, scaled if much larger.
    faults: what damaged portions and jumps of time do, "raise" InputError or "skip" them and count (a jump restarts the memory).
    window: sliding (as long as in training) or disjoint (as long as the step). stepping: see `saccade.model.stepping`.

    Rarely needed:
    runtime, device, threads: what computes the network; see `saccade.export.runtime.open_runtime`.
    trust: open a .pt2 file, which can run any code.
    width, height: the sensor, where the first events needn't tell. canvas: where its pixels go, instead of what FIT chooses.
    counts: of disjoint windows shorter than in training, held: as if what they hold had gone on for so long; plain: as counted (the paper).
    reset_every: end the memory after so many frames, as published; 0 = never. pictures: make `picture` available.
    decoding, adaptive, timing, live: see `Decoding`, `Adaptive`, `Timing`, `LiveSettings`.
    """

    def __init__(
        self,
        detector: Detector | Path | str | Runtime,
        rate_hz: Rate = 20.0,
        *,
        score: float | None = None,
        tracker: bool | Tracker = True,
        fit: Fit = "auto",
        faults: Faults = "raise",
        window: WindowKind = "sliding",
        stepping: Stepping = "direct",
        runtime: RuntimeName = "auto",
        device: str = "auto",
        threads: int | None = None,
        trust: bool = False,
        width: int | None = None,
        height: int | None = None,
        size: Size | None = None,
        canvas: Canvas | None = None,
        counts: Counts = "held",
        reset_every: int = 0,
        pictures: bool = False,
        decoding: Decoding = Decoding(),  # noqa: B008 (frozen)
        adaptive: Adaptive | None = None,
        timing: Timing = Timing(),  # noqa: B008
        live: LiveSettings = LiveSettings(),  # noqa: B008
    ) -> None:
        _check_choices(window=window, stepping=stepping, counts=counts, faults=faults, fit=fit)
        if (width is None) != (height is None):
            raise InputError(f"stream: width={width}, height={height}; expected both or none")
        self.runtime = (
            open_runtime(detector, runtime, device, threads, trust=trust) if isinstance(detector, Detector | Path | str) else detector
        )
        self.window, self.stepping, self.counts, self.reset_every, self.faults = window, stepping, counts, reset_every, faults
        self.familiar = Familiar(self.runtime.config)
        self._boxes = Shown(self.runtime.config, decoding, score, tracker)
        self.adaptive, self.timing, self.live, self.pictures = adaptive, timing, live, pictures
        self.latency_s = nan  # of the newest answer, from the arrival of its window's last event
        self.tracker, self._fit = self._boxes.tracker, (fit, size, fixed_size(self.runtime))
        self._wanted_hz: Rate | None = None  # a rate that was set and not taken yet
        self._wanted_ways: tuple[WindowKind, Stepping] | None = None  # windows and stepping, the same
        self._rate_hz: Rate = rate_hz if adaptive is None or adaptive.max_rate_hz is None else adaptive.max_rate_hz
        self._pace = pace_of(adaptive, rate_hz)
        self._sensor, self._canvas = None if width is None or height is None else (width, height), canvas
        self.reset()

    def reset(self) -> None:
        """Begin anew: time, memory, tracks and counters; the sensor may be another one. The rate stays."""
        self._counted = CountersUnderWay()
        self._begin()

    def _begin(self) -> None:
        self._rate_hz, self._wanted_hz = self.rate_hz, None
        self._intake = Intake(self._rate_hz, self.faults, self._counted, self.timing)
        self._intake.size = self._sensor
        self._windows = WindowBuffer(self.window, self.runtime.config.window_us)
        self._engine: Engine | None = None  # made when the sensor's size is known
        if self.tracker is not None:
            self.tracker.reset()

    @property
    def rate_hz(self) -> Rate:
        """Answers per second of event time; of an adaptive stream the most. May be set while it runs: the next window is the first."""
        wanted_hz = self._wanted_hz
        return self._rate_hz if wanted_hz is None else wanted_hz

    @rate_hz.setter
    def rate_hz(self, rate_hz: Rate) -> None:
        if self.adaptive is not None:
            raise InputError("stream: its rate is adaptive; make another stream with other min_rate_hz and max_rate_hz")
        Grid.of_rate(rate_hz, 0)
        self._wanted_hz = rate_hz  # taken between two windows: whoever sets it may be another thread

    @property
    def ways(self) -> tuple[WindowKind, Stepping]:
        """Windows and stepping. May be set while it runs: from the next window on, with an empty memory; time and tracks go on."""
        wanted = self._wanted_ways
        return (self.window, self.stepping) if wanted is None else wanted

    @ways.setter
    def ways(self, ways: tuple[WindowKind, Stepping]) -> None:
        window, stepping = ways
        _check_choices(window=window, stepping=stepping)
        self._wanted_ways = window, stepping

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of what is found, in the order of `Detections.classes`."""
        return self.runtime.config.classes

    @property
    def sensor(self) -> tuple[int, int]:
        """Width and height, known from the first events on."""
        size = self._intake.size
        if size is None:
            raise InputError("stream: no event has come, so the sensor's size isn't known; ask after the first answer")
        return size

    @property
    def counters(self) -> Counters:
        """Since the stream began or was reset."""
        return self._counted.snapshot()

    @property
    def memory_bytes(self) -> int:
        """Of the states that are kept."""
        return 0 if self._engine is None else self._engine.memory_bytes

    def picture(self) -> Histogram:
        """The last 50 ms of events as a frame of the sensor's size, after the newest answer, valid until the next; needs pictures=True."""
        picture = self._engine.picture() if self._engine is not None and self.pictures else None
        if picture is None:
            raise InputError("stream: no picture: make the stream with pictures=True, and ask after its first answer")
        return picture

    def push(self, events: Events) -> list[Detections]:
        """Take the next events, as many as there are; returns what they complete. Where portions begin and end changes nothing."""
        return list(self._push(events))

    def advance_to(self, time_us: int) -> list[Detections]:
        """Say that no event came until then: the output goes on through silence. Before the first event nothing happens."""
        self._change_rate()
        self._intake.now_s = time.perf_counter()
        return list(self._steps(self._intake.cutter.advance_to(time_us)))

    def finish(self) -> list[Detections]:
        """What the last events complete when none follow."""
        return list(self._finish())

    def run(self, source: Path | str | Iterable[Events]) -> Iterator[Detections]:
        """All of a source: a path, a reader, a simulation, any iterable of Events, or what `saccade.sources.open` opens.

        A live source (`live = True`) is read in a thread of its own, never waits for the network, and is closed at the end.
        """
        if isinstance(source, Path | str):
            from saccade.sources.open import open_source

            with open_source(source, faults=self.faults) as opened:
                yield from self.run(opened)
        else:
            yield from self._run_live(source) if getattr(source, "live", False) else self._run_all(source)

    def save(self, path: Path | str) -> None:
        """All that the next detections depend on, in a file that is whole or not there."""
        from saccade.stream.saved import save

        self._change_ways()
        save(self, Path(path))

    def restore(self, path: Path | str) -> None:
        """Go on where the saved stream had got to, of the same network, settings and sensor. A file that is refused changes nothing."""
        from saccade.stream.saved import restore

        restore(self, Path(path))

    def _run_all(self, source: Iterable[Events]) -> Iterator[Detections]:
        portions = iter(source)
        while True:
            try:
                events = next(portions, None)
            except InputError as error:  # the source can't go on
                self._intake.fault(error)
                break
            if events is None:
                break
            yield from self._push(events)
        yield from self._finish()

    def _run_live(self, source: Iterable[Events]) -> Iterator[Detections]:
        live, silence = self.live, Silence(source)
        overload = Overload(live.most_waiting) if live.overload == "merge" else None
        seen_us: int | None = None  # time of the newest event
        with Feed(source, live.queue) as feed:
            while not feed.over or self._intake.cutter.waiting:
                behind, period_s = self._intake.cutter.waiting > 0, float(self._intake.cutter.grid.step_us) / 1e6
                for portion in [] if behind and overload is None else feed.take(0 if behind else min(period_s, 0.05)):
                    before = self._counted["events"]
                    yield from self._accept(portion.events, portion.arrived_s)
                    taken = self._counted["events"] > before
                    silence.heard(portion.arrived_s, taken)
                    seen_us = int(portion.events.t.max()) if taken else seen_us
                self._counted.add(**feed.losses())
                now_s = time.perf_counter()
                if not feed.waits:
                    quiet_us = silence.lasts(now_s, live.stall_s)
                    if seen_us is not None and not self._intake.cutter.waiting:
                        self._intake.now_s = now_s
                        self._intake.cutter.advance_to(seen_us + int(quiet_us - live.patience_us * max(silence.speed, 1.0)))
                if overload is not None:
                    overload.speed = silence.speed
                for found in self._steps(self._intake.cutter.complete(), overload):
                    yield found
                    if overload is not None:
                        overload.stepped(time.perf_counter() - now_s)  # with what the caller did with it
                    break  # what came meanwhile decides what is merged
            self._counted.add(**feed.losses())
            if isinstance(feed.error, InputError):
                self._intake.fault(feed.error)
            elif feed.error is not None:
                raise feed.error
        yield from self._finish()

    def _push(self, events: Events) -> Iterator[Detections]:
        yield from self._accept(events, time.perf_counter())
        yield from self._steps(self._intake.cutter.complete())

    def _accept(self, events: Events, arrived_s: float) -> Iterator[Detections]:
        """Into the cutter. Detections come only of what a jump of time leaves behind."""
        self._counted.add(portions=1)
        self._change_rate()
        try:
            if self._intake.jumps(events):
                yield from self._finish()
                self._begin()
            self._intake.take(events, arrived_s)
        except InputError as error:
            self._intake.fault(error)

    def _finish(self) -> Iterator[Detections]:
        self._change_rate()
        yield from self._steps(self._intake.cutter.finish())
        if self._engine is not None and self._windows.since:  # of an adaptive rate: too little for a step until now
            yield self._step(self._engine)

    def _change_ways(self) -> None:
        ways, self._wanted_ways = self._wanted_ways, None
        if ways is not None and ways != (self.window, self.stepping):
            self.window, self.stepping = ways
            self._windows, self._engine = WindowBuffer(self.window, self.runtime.config.window_us), None

    def _change_rate(self) -> None:
        self._change_ways()
        wanted_hz, self._wanted_hz = self._wanted_hz, None
        if wanted_hz is not None and wanted_hz != self._rate_hz:
            self._rate_hz = wanted_hz
            self._intake.cutter.change_rate(wanted_hz)
            if self._engine is not None:
                self._engine.change_step(self._intake.cutter.grid.step_us)

    def _steps(self, pieces: Iterator[Window], overload: Overload | None = None) -> Iterator[Detections]:
        """One after the other; those that aren't due, or that come too fast, become part of the next."""
        cutter = self._intake.cutter
        for piece in pieces:
            engine = self.engine(piece.width, piece.height)
            engine.add(piece)
            self.familiar.events(piece, engine.canvas)
            self._counted.add(windows=1, late_events=piece.late)
            elapsed_us = self._windows.elapsed_us(piece.end_us)
            if overload is not None and overload.merges(cutter.waiting + 1, float(cutter.grid.step_us) / 1e6):
                self._counted.add(merged_windows=1)
            elif elapsed_us is not None and not self._pace.due(elapsed_us, self._windows.since, piece.width * piece.height):
                self._counted.add(skipped_windows=1)
            else:
                yield self._step(engine)
                self._change_rate()

    def _step(self, engine: Engine) -> Detections:
        """Frame, network, boxes, ids of the window that ends with the newest piece."""
        last_event_us = self._windows.last_event_us()
        frame = engine.take()
        rows = engine.advance(frame)
        (found,) = decode_rows(rows[None], [frame.end_us], engine.canvas, **vars(self._boxes.decoding))
        found = self._boxes.of(found)
        self._counted.add(steps=1, unseen_events=self._windows.unseen)
        self._windows.unseen = 0
        self.latency_s = time.perf_counter() - self._intake.arrived_s(last_event_us)
        self._counted.latencies.add(self.latency_s)
        return found

    def engine(self, width: int, height: int) -> Engine:
        """Frames and memory for a sensor of this size."""
        if self._engine is None:
            self._engine = self.new_engine(width, height, self._windows, self._intake.cutter.grid.step_us)
            self.familiar.sensor(self._engine.canvas)
        return self._engine

    def new_engine(self, width: int, height: int, windows: WindowBuffer, step_us: Fraction) -> Engine:
        history = History(self.runtime.config.window_us, self.stepping, self.reset_every)
        return Engine(self.runtime, self.canvas(width, height), windows, step_us, history, self.counts, self.pictures)

    def canvas(self, width: int, height: int) -> Canvas:
        """Where the pixels of a sensor of this size go."""
        return canvas_for(self.runtime.config, width, height, *self._fit) if self._canvas is None else self._canvas


def _check_choices(**values: str) -> None:
    choices: dict[str, Any] = {
        "window": KINDS,
        "stepping": get_args(Stepping),
        "counts": get_args(Counts),
        "faults": get_args(Faults),
        "fit": [one for one in get_args(Fit) if one != "tile"],  # which is several streams: `saccade.stream.tiles.open_stream`
    }
    for name, value in values.items():
        if value not in choices[name]:
            raise InputError(f"stream: unknown {name}={value!r}; expected {' or '.join(choices[name])}")
