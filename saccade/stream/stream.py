"""EVENTS -> DETECTIONS, live and at any rate: `saccade.Stream`."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from saccade.detection.track import Tracker
from saccade.export.runtime import Runtime, RuntimeName, open_runtime
from saccade.model.detector import Detector
from saccade.representation.canvas import Canvas
from saccade.representation.windows import KINDS, Grid, Rate, WindowKind
from saccade.stream.adaptive import pace_of
from saccade.stream.counters import Counters, Tally
from saccade.stream.engine import Engine
from saccade.stream.fit import canvas_for
from saccade.stream.intake import Intake
from saccade.stream.overload import Feed, Overload
from saccade.stream.recent import Recent
from saccade.types import Counts, Detections, Events, Faults, InputError, Stepping, Window

MAX_GAP_US = 600_000_000


class Stream:
    """A detector that is fed with events as they come and answers at RATE_HZ; each answer is of the end of a window.

    stream = saccade.Stream(detector, rate_hz=200)
    for detections in stream.run("drive.raw"): ...        # or: stream.push(events), in any portions

    The memory steps by the true time between the windows that are run, whatever was merged, left out or late. Between events the output
    goes on at its rate. Memory: direct stepping keeps one state; interleaved those of the last window, rate x window (10 at 200 Hz); a
    state of s5-vit-b at 304 x 240 is 5 MB (`memory_bytes`); and the events of one window.

    detector: a Detector, a weights file or name, a file that `saccade export` wrote (with RUNTIME), or a Runtime.
    width, height: the sensor, where the first events needn't tell. canvas: where its pixels go; by default padded as the network needs.
    window: sliding (as long as in training) or disjoint (as long as the step). stepping: see `saccade.model.stepping`.
    counts: plain, or scaled to what a window as long as in training would hold: disjoint windows lose less at high rates.
    score, nms_iou, maximum: see `decode`. tracker: True or a Tracker gives ids.
    min_rate_hz, max_rate_hz: an adaptive rate, a step once EVENTS_PER_STEP came (default: a tenth as many as the sensor has pixels).
    slack_us waits for events out of order. max_gap_us: the longest pause that is believed. faults: what damaged portions and jumps of time
        do, "raise" InputError or "skip" them and count (a jump restarts the memory).
    Of live sources: QUEUE events wait at most, MOST_WAITING windows before they are merged (at once if steps take longer than the period);
        with overload="wait" none are merged, and answers may come ever later. After PATIENCE_US without events the clock goes on
        without them; after STALL_S, if given, the source counts as broken.
    """

    def __init__(
        self,
        detector: Detector | Path | str | Runtime,
        rate_hz: Rate = 20.0,
        *,
        width: int | None = None,
        height: int | None = None,
        canvas: Canvas | None = None,
        window: WindowKind = "sliding",
        stepping: Stepping = "direct",
        counts: Counts = "plain",
        reset_every: int = 0,
        runtime: RuntimeName = "torch",
        device: str = "cpu",
        threads: int | None = None,
        score: float = 0.1,
        nms_iou: float = 0.45,
        maximum: int = 300,
        tracker: bool | Tracker = False,
        min_rate_hz: float | None = None,
        max_rate_hz: float | None = None,
        events_per_step: int | None = None,
        origin_us: int = 0,
        slack_us: int = 0,
        max_gap_us: int = MAX_GAP_US,
        faults: Faults = "raise",
        overload: Literal["merge", "wait"] = "merge",
        queue: int = 8_000_000,
        most_waiting: int = 4,
        patience_us: int = 100_000,
        stall_s: float | None = None,
    ) -> None:
        for name, (value, choices) in {
            "window": (window, KINDS),
            "stepping": (stepping, get_args(Stepping)),
            "counts": (counts, get_args(Counts)),
            "faults": (faults, get_args(Faults)),
            "overload": (overload, ("merge", "wait")),
        }.items():
            if value not in choices:
                raise InputError(f"stream: unknown {name}={value!r}; expected {' or '.join(choices)}")
        if (width is None) != (height is None):
            raise InputError(f"stream: width={width}, height={height}; expected both or none")
        self.runtime = open_runtime(detector, runtime, device, threads) if isinstance(detector, Detector | Path | str) else detector
        self.window, self.stepping, self.faults, self.stall_s = window, stepping, faults, stall_s
        self.overload, self.queue, self.most_waiting, self.patience_us = overload, queue, most_waiting, patience_us
        Overload(most_waiting)
        Feed((), queue)
        self.tracker = Tracker() if tracker is True else tracker or None
        self._cutting = {"origin_us": origin_us, "slack_us": slack_us, "max_gap_us": max_gap_us}
        self._engine_options: dict[str, Any] = {
            "stepping": stepping, "counts": counts, "reset_every": reset_every, "tracker": self.tracker,
            "threshold": score, "nms_iou": nms_iou, "maximum": maximum,
        }  # fmt: skip
        self.adaptive = min_rate_hz is not None or max_rate_hz is not None
        self._rate_hz: Rate = rate_hz if max_rate_hz is None else max_rate_hz
        slowest_hz = (float(rate_hz) if min_rate_hz is None else min_rate_hz) if self.adaptive else None
        self._pace = pace_of(slowest_hz, float(self._rate_hz), events_per_step)
        self._sensor, self._canvas = None if width is None or height is None else (width, height), canvas
        self.reset()

    def reset(self) -> None:
        """Begin anew: time, memory, tracks and counters; the sensor may be another one. The rate stays."""
        self._tally = Tally()
        self._begin()

    def _begin(self) -> None:
        self._wanted_hz: Rate | None = None
        self._intake = Intake(self._rate_hz, self.faults, self._tally, **self._cutting)
        self._intake.size = self._sensor
        self._recent = Recent(self.window, self.runtime.config.window_us)
        self._engine: Engine | None = None  # made for the sensor's size

    @property
    def rate_hz(self) -> Rate:
        """Answers per second of event time; of an adaptive stream the most. May be set while it runs: the next window is the first."""
        wanted_hz = self._wanted_hz
        return self._rate_hz if wanted_hz is None else wanted_hz

    @rate_hz.setter
    def rate_hz(self, rate_hz: Rate) -> None:
        if self.adaptive:
            raise InputError("stream: its rate is adaptive; make another stream with other min_rate_hz and max_rate_hz")
        Grid.of_rate(rate_hz, 0)
        self._wanted_hz = rate_hz  # taken between two windows: whoever sets it may be another thread

    @property
    def counters(self) -> Counters:
        """Since the stream began or was reset."""
        return self._tally.snapshot()

    @property
    def memory_bytes(self) -> int:
        """Of the states that are kept."""
        return 0 if self._engine is None else self._engine.memory_bytes

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

        save(self, Path(path))

    def restore(self, path: Path | str) -> None:
        """Go on where the saved stream had got to; it must have had the same configuration of the network and the same settings."""
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
        speed = float(getattr(source, "speed", 1.0))
        overload = Overload(self.most_waiting) if self.overload == "merge" else None
        seen_us, seen_s, heard_s = None, 0.0, time.perf_counter()  # the newest event's time and arrival; anything's arrival
        with Feed(source, self.queue) as feed:
            while not feed.over or self._intake.cutter.waiting:
                behind, period_s = self._intake.cutter.waiting > 0, float(self._intake.cutter.grid.step_us) / 1e6
                for portion in [] if behind and overload is None else feed.take(0 if behind else min(period_s, 0.05)):
                    before, heard_s = self._tally["events"], portion.arrived_s
                    yield from self._accept(portion.events, portion.arrived_s)
                    if self._tally["events"] > before:
                        seen_us, seen_s = int(portion.events.t.max()), portion.arrived_s
                self._tally.add(**feed.losses())
                now_s = time.perf_counter()
                if not feed.waits:
                    if self.stall_s is not None and now_s - heard_s > self.stall_s:
                        raise InputError(f"stream: nothing came from {source!r} for {self.stall_s:g} s; is it still there?")
                    if seen_us is not None and not self._intake.cutter.waiting:
                        self._intake.now_s = now_s
                        self._intake.cutter.advance_to(seen_us + int((now_s - seen_s) * speed * 1e6) - self.patience_us)
                for found in self._steps(self._intake.cutter.complete(), overload):
                    yield found
                    if overload is not None:
                        overload.stepped(time.perf_counter() - now_s)  # with what the caller did with it
                    break  # what came meanwhile decides what is merged
            self._tally.add(**feed.losses())
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
        self._tally.add(portions=1)
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
        if self._recent.since:  # of an adaptive rate: too little for a step until now
            yield self._step()

    def _change_rate(self) -> None:
        wanted_hz, self._wanted_hz = self._wanted_hz, None
        if wanted_hz is not None and wanted_hz != self._rate_hz:
            self._rate_hz = wanted_hz
            self._intake.cutter.change_rate(wanted_hz)

    def _steps(self, pieces: Iterator[Window], overload: Overload | None = None) -> Iterator[Detections]:
        """One after the other; those that aren't due, or that come too fast, become part of the next."""
        cutter = self._intake.cutter
        for piece in pieces:
            self._recent.add(piece)
            self._tally.add(windows=1, late_events=piece.late)
            elapsed_us = self._recent.elapsed_us(piece.end_us)
            if overload is not None and overload.merges(cutter.waiting + 1, float(cutter.grid.step_us) / 1e6):
                self._tally.add(merged_windows=1)
            elif elapsed_us is not None and not self._pace.due(elapsed_us, self._recent.since, piece.width * piece.height):
                self._tally.add(skipped_windows=1)
            else:
                yield self._step()
                self._change_rate()

    def _step(self) -> Detections:
        fresh = self._recent.since > 0
        window = self._recent.take()
        engine = self.engine(window.width, window.height)
        found = engine.step(window)
        self._tally.add(steps=1, unseen_events=self._recent.unseen)
        self._recent.unseen = 0
        self._tally.latencies.add(time.perf_counter() - self._intake.arrived_s(int(window.t.max()) if fresh and len(window) else None))
        return found

    def engine(self, width: int, height: int) -> Engine:
        """What steps, made for a sensor of this size."""
        if self._engine is None:
            canvas = canvas_for(self.runtime.config, width, height, "pad") if self._canvas is None else self._canvas
            self._engine = Engine(self.runtime, canvas, **self._engine_options)
        return self._engine
