"""STREAM <-> FILE: safetensors with a JSON description; no file can run code, and none is half written."""

import hashlib
import json
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from saccade.config import DetectorConfig
from saccade.detection.track import Motion, TrackStates
from saccade.events.mend import MOST_PIXELS
from saccade.files import check_readable, replacing
from saccade.model.stepping import History
from saccade.representation.windows import Grid, Rate, Waiting, WindowBuffer
from saccade.stream.counters import CountersUnderWay
from saccade.stream.intake import Intake
from saccade.types import Events, InputError, Window

if TYPE_CHECKING:
    from saccade.stream.stream import Stream

FORMAT = "2"
LATEST_US = 1 << 62  # sums of two times fit into int64
SavedArrays = dict[str, np.ndarray]
# What reading and parsing a damaged file raises, besides InputError. Nothing of the stream has changed by then.
DAMAGE = (
    SafetensorError, OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError, MemoryError
)  # fmt: skip


def save(stream: "Stream", path: Path) -> None:
    arrays: SavedArrays = {}
    waiting, windows, engine = stream._intake.cutter.state(), stream._windows, stream._engine
    wanted_hz = stream._wanted_hz
    notes: dict[str, Any] = {
        "config": stream.runtime.config.to_json(),
        "settings": _settings(stream),
        "step_us": str(stream._intake.cutter.grid.step_us),
        "rate_hz": _rate_to_json(stream._rate_hz),
        "wanted_hz": None if wanted_hz is None else _rate_to_json(wanted_hz),
        "waiting": [*waiting[1:]],
        "pieces": [[piece.start_us, piece.end_us, len(piece)] for piece in windows.pieces],
        "recent": [windows.taken_us, windows.since, windows.unseen],
        "counters": stream._counted.to_json(),
    }
    if waiting.events is not None:
        notes["sensor"] = [waiting.events.width, waiting.events.height]
        arrays |= _columns("waiting", waiting.events)
        arrays |= _columns("pieces", Events.join([Events.empty(*notes["sensor"]), *windows.pieces]))
    if engine is not None:
        history = engine.history
        notes["canvas"] = _canvas_size(engine.canvas)
        notes["history"] = [history.ends_us, history.depths, history.began_us]
        for number, state in enumerate(history.states):
            arrays |= {f"state.{number}.{name}": array for name, array in stream.runtime.state_to_arrays(state).items()}
    if stream.tracker is not None:
        notes["tracker"] = [stream.tracker.next_id, stream.tracker.time_us]
        motion, *columns = stream.tracker.tracks
        arrays |= {f"tracks.{number}": column for number, column in enumerate((*motion, *columns))}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(notes)
    with replacing(path) as temporary:
        save_file(arrays, temporary, {"stream": FORMAT, "notes": text, "digest": digest(text, arrays)})


def restore(stream: "Stream", path: Path) -> None:
    """Everything is read, checked and built before the stream changes: a file that is refused leaves it untouched."""
    check_readable(path)
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("stream") != FORMAT:
                raise InputError(f"{path}: not the state of a stream that this saccade wrote (format {metadata.get('stream')})")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if "digest" in metadata and metadata["digest"] != digest(metadata["notes"], arrays):  # files of before have none
            raise ValueError("its content doesn't fit its checksum")
        notes = json.loads(metadata["notes"])
        _check(stream, path, notes)
        saved = _parse(stream, notes, arrays)
    except DAMAGE as error:
        if isinstance(error, InputError) and str(error).startswith(str(path)):
            raise
        raise InputError(f"{path}: damaged or cut off ({error}); begin anew with reset()") from error
    _put(stream, saved)


def digest(notes: str, arrays: SavedArrays) -> str:
    """SHA-256 of all that a file holds."""
    found = hashlib.sha256(notes.encode("utf8", "surrogatepass"))
    for name, array in sorted(arrays.items()):
        found.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode("utf8", "surrogatepass"))
        found.update(array.tobytes())
    return found.hexdigest()


def _settings(stream: "Stream") -> dict[str, Any]:
    counts = "plain" if stream.window == "sliding" else stream.counts  # windows as long as in training: the same
    return {"window": stream.window, "stepping": stream.stepping, "counts": counts, "reset_every": stream.reset_every,
            "tracker": stream.tracker is not None, **vars(stream.timing)}  # fmt: skip


def _check(stream: "Stream", path: Path, notes: dict[str, Any]) -> None:
    """InputError if a good file is of another detector, of other settings, or for another sensor."""
    if DetectorConfig.from_json(notes["config"]) != stream.runtime.config:
        raise InputError(
            f"{path}: the state of another detector than {stream.runtime.config.name}; open the stream with the one it was saved with"
        )
    own, saved = _settings(stream), {"counts": "plain"} | notes["settings"]  # which was the only way before there was a choice
    other = [f"{name}={saved.get(name)!r}, not {value!r}" for name, value in own.items() if saved.get(name) != value]
    if other:
        raise InputError(f"{path}: saved by a stream with {', '.join(other)}; make one with the same settings")
    if notes.get("sensor") is None:
        return
    width, height = _sensor(notes["sensor"])
    canvas = stream._canvas
    size = stream._intake.size if canvas is None else (canvas.sensor_width, canvas.sensor_height)
    if size not in (None, (width, height)):
        advice = "reset() it if it should go on with the other, or make a stream for that one"
        raise InputError(f"{path}: saved for a sensor of {width} x {height}, this stream has one of {size[0]} x {size[1]}; {advice}")
    own_canvas = _canvas_size(stream.canvas(width, height))
    if notes.get("canvas", own_canvas) != own_canvas:
        raise InputError(
            f"{path}: saved with a canvas of {notes['canvas']}, not {own_canvas} (width, height, scale); make a stream with that"
        )


def _canvas_size(canvas: Any) -> list[float]:
    return [canvas.width, canvas.height, canvas.scale]


def _rate_to_json(rate_hz: Rate) -> float | str:
    return str(rate_hz) if isinstance(rate_hz, Fraction) else float(rate_hz)


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedStream:
    """A file's content, checked: putting it into a stream can't fail."""

    rate_hz: Rate
    wanted_hz: Rate | None
    sensor: tuple[int, int] | None
    counted: CountersUnderWay
    waiting: Waiting
    pieces: list[Window]
    recent: tuple[int | None, int, int]
    history: History | None
    tracker: tuple[TrackStates, int, int | None] | None


def _parse(stream: "Stream", notes: dict[str, Any], arrays: SavedArrays) -> SavedStream:
    """ValueError, or another one of DAMAGE, if anything doesn't fit the rest."""
    step_us = _fraction(notes["step_us"])
    rate_hz = _rate(notes["rate_hz"]) if "rate_hz" in notes else 1_000_000 / step_us
    if "rate_hz" not in notes and float(rate_hz).is_integer():
        rate_hz = float(rate_hz)
    grid = Grid.of_rate(rate_hz, stream.timing.origin_us)
    if grid.step_us != step_us:
        _refuse("step_us", notes["step_us"], f"{grid.step_us}, as the rate says")
    sensor = None if notes.get("sensor") is None else _sensor(notes["sensor"])
    waiting = _waiting(stream, grid, notes["waiting"], None if sensor is None else _events("waiting", arrays, sensor))
    pieces = _pieces(notes["pieces"], None if sensor is None else _events("pieces", arrays, sensor), waiting.passed_us)
    latest_us = -LATEST_US if waiting.passed_us is None else waiting.passed_us
    taken_us, since, unseen = notes["recent"]
    recent = (
        None if taken_us is None else _whole("recent", taken_us, -LATEST_US, latest_us),
        _count("recent", since),
        _count("recent", unseen),
    )
    counted = CountersUnderWay()
    counted.restore({name: _count(f"counters.{name}", number) for name, number in notes["counters"].items()})
    history = None
    if notes.get("history") is not None and sensor is not None:
        history = _history(stream, notes["history"], arrays, sensor, latest_us)
    elif any(name.startswith("state.") for name in arrays):
        _refuse("history", notes.get("history"), "the times of the states")
    tracker = None
    if stream.tracker is not None:
        next_id, time_us = notes["tracker"]
        time_us = None if time_us is None else _whole("tracker", time_us, -LATEST_US, latest_us)
        tracker = _tracks(arrays, _count("tracker", next_id), time_us), next_id, time_us
    expected = {f"{name}.{column}" for name in ("waiting", "pieces") for column in "txyp" if sensor is not None}
    unknown = {name for name in arrays if not name.startswith(("state.", "tracks."))} - expected
    if unknown:
        _refuse("arrays", sorted(unknown)[:3], "only those of a stream")
    wanted_hz = None if notes.get("wanted_hz") is None else _rate(notes["wanted_hz"])
    return SavedStream(
        rate_hz=rate_hz, wanted_hz=wanted_hz, sensor=sensor, counted=counted, waiting=waiting, pieces=pieces, recent=recent,
        history=history, tracker=tracker,
    )  # fmt: skip


def _put(stream: "Stream", saved: SavedStream) -> None:
    intake = Intake(saved.rate_hz, stream.faults, saved.counted, stream.timing)
    intake.cutter.restore(saved.waiting)
    intake.size = stream._sensor if saved.sensor is None else saved.sensor
    windows = WindowBuffer(stream.window, stream.runtime.config.window_us)
    windows.pieces.extend(saved.pieces)
    windows.taken_us, windows.since, windows.unseen = saved.recent
    engine = None
    if saved.history is not None and saved.sensor is not None:
        engine = stream.new_engine(*saved.sensor, windows, intake.cutter.grid.step_us)
        engine.history = saved.history
    # From here on nothing can fail.
    stream._counted, stream._intake, stream._windows, stream._engine = saved.counted, intake, windows, engine
    stream._rate_hz, stream._wanted_hz = saved.rate_hz, saved.wanted_hz
    if stream.tracker is not None and saved.tracker is not None:
        stream.tracker.tracks, stream.tracker.next_id, stream.tracker.time_us = saved.tracker


def _waiting(stream: "Stream", grid: Grid, values: list[Any], events: Events | None) -> Waiting:
    """What the cutter holds. The next end follows from the other values; one far from them would cut empty pieces for ever."""
    newest_us, last_event_us, following, passed_us, late, unreported = values
    before_first = events is None or (newest_us == 0 and passed_us is None and not len(events))  # files of before wrote 0 for None
    newest_us = None if newest_us is None or before_first else _time("waiting", newest_us)
    passed_us = None if passed_us is None else _time("waiting", passed_us)
    last_event_us, late = _time("waiting", last_event_us), _count("waiting", late)
    unreported = [(_time("waiting", mark), _count("waiting", count)) for mark, count in unreported]
    if sum(count for _, count in unreported) > late or (newest_us is None and (late or passed_us is not None)):
        _refuse("waiting", values, "late events that are counted, and ends that passed, only after the first event")
    first_us, expected = passed_us, 0
    if newest_us is not None:
        if first_us is None:
            if events is None or not len(events):
                _refuse("waiting", values, "events that wait for the first end")
            first_us = int(events.t.min())
        expected = grid.index(first_us) + 1
        times_us = np.zeros(0, np.int64) if events is None else events.t
        if len(times_us) and not (int(times_us.min()) > -LATEST_US and int(times_us.max()) <= last_event_us):
            _refuse("waiting.t", [int(times_us.min()), int(times_us.max())], f"times up to {last_event_us}")
        gaps_us = np.diff(np.maximum.accumulate(np.concatenate(([first_us], times_us, [newest_us]))))
        # A clock that went on by the longest gap, and then an event after as long, may wait together.
        longest_us = 2 * (stream.timing.max_gap_us + stream.timing.slack_us + int(grid.step_us) + 1)
        if last_event_us > newest_us or int(gaps_us.max()) > longest_us:
            _refuse("waiting", values, f"times at most {longest_us} us apart")
    elif events is not None and len(events):
        _refuse("waiting", values, "no events before the first")
    if type(following) is not int or following != expected:
        _refuse("waiting", following, f"{expected} as the number of the next end")
    return Waiting(events, newest_us, last_event_us, following, passed_us, late, unreported)


def _pieces(values: list[Any], events: Events | None, passed_us: int | None) -> list[Window]:
    """Each begins where the one before ended, the last one ends at the newest end that passed, and each holds its own events."""
    pieces: list[Window] = []
    first = 0
    for start_us, end_us, count in values:
        if events is None or not _time("pieces", start_us) < _time("pieces", end_us) or (pieces and pieces[-1].end_us != start_us):
            _refuse("pieces", [start_us, end_us, count], "pieces one after the other")
        part = events[first : first + _count("pieces", count)]
        if len(part) != count or (count and not start_us <= int(part.t.min()) <= int(part.t.max()) < end_us):
            _refuse("pieces", [start_us, end_us, count], "as many events of this time")
        pieces.append(Window(part.t, part.x, part.y, part.p, part.width, part.height, start_us, end_us))
        first += count
    if (pieces and pieces[-1].end_us != passed_us) or first != (0 if events is None else len(events)):
        _refuse("pieces", values[-1:], f"{first} events until {passed_us} us")
    return pieces


def _history(stream: "Stream", values: list[Any], arrays: SavedArrays, sensor: tuple[int, int], latest_us: int) -> History:
    """Only states of the shape that this network has for this sensor: a wrong one would fail in the middle of a stream."""
    ends_us, depths, began_us = values
    ends_us = tuple(_whole("history", end_us, -LATEST_US, latest_us) for end_us in ends_us)
    depths = tuple(_count("history", depth) for depth in depths)
    if len(ends_us) != len(depths) or list(ends_us) != sorted(set(ends_us)) or (ends_us and _time("history", began_us) > ends_us[0]):
        _refuse("history", values, "ends in the order of time, and a depth for each")
    if stream.stepping == "direct" and len(ends_us) > 1:
        _refuse("history", values, "one state")
    states, seen = [], set()
    if ends_us:
        canvas = stream.canvas(*sensor)
        expected = stream.runtime.state_to_arrays(stream.runtime.initial_state(canvas.height, canvas.width))
        for number in range(len(ends_us)):
            own = {name: arrays[f"state.{number}.{name}"] for name in expected}
            for name, array in own.items():
                if array.shape != expected[name].shape or array.dtype != expected[name].dtype:
                    _refuse(name, f"{array.dtype} {array.shape}", f"{expected[name].dtype} {expected[name].shape}")
            seen |= {f"state.{number}.{name}" for name in own}
            states.append(stream.runtime.state_from_arrays(own))
    if unknown := {name for name in arrays if name.startswith("state.")} - seen:
        _refuse("arrays", sorted(unknown)[:3], f"{len(ends_us)} states")
    return History(
        stream.runtime.config.window_us, stream.stepping, stream.reset_every, ends_us, tuple(states), depths, _time("history", began_us)
    )


def _tracks(arrays: SavedArrays, next_id: int, time_us: int | None) -> TrackStates:
    names = (*Motion._fields, *TrackStates._fields[1:])
    columns = [arrays[f"tracks.{number}"] for number in range(len(names))]
    count = len(columns[-1])
    for name, column in zip(names, columns, strict=True):
        dtype = np.float64 if name in (*Motion._fields, "votes") else np.bool_ if name == "missed" else np.int64
        width = max(column.shape[-1], 1) if name == "votes" and column.ndim else 4
        if column.dtype != dtype or column.shape != ((count, width) if dtype is np.float64 else (count,)):
            _refuse(f"tracks.{name}", f"{column.dtype} {column.shape}", f"{np.dtype(dtype)} of {count} tracks")
        if dtype is np.float64 and not np.isfinite(column).all():
            _refuse(f"tracks.{name}", "NaN or infinite", "numbers")
    if extra := {name for name in arrays if name.startswith("tracks.")} - {f"tracks.{number}" for number in range(len(names))}:
        _refuse("arrays", sorted(extra)[:3], f"{len(names)} columns of tracks")
    tracks = TrackStates(Motion(*columns[: len(Motion._fields)]), *columns[len(Motion._fields) :])
    if count and (
        time_us is None
        or not (tracks.first_us.min() > -LATEST_US and (tracks.first_us <= tracks.seen_us).all() and tracks.seen_us.max() <= time_us)
        or not (tracks.ids.min() >= -1 and tracks.ids.max() < next_id)
        or not (tracks.classes.min() >= 0 and tracks.classes.max() < tracks.votes.shape[1] and tracks.votes.min() >= 0)
        or not (tracks.motion.position[:, 2:].min() > 0 and tracks.motion.position_variance.min() >= 0)
    ):
        _refuse("tracks", f"{count} until {time_us} us", "tracks with positive sides, seen by then, with ids that were given")
    return tracks


def _columns(name: str, events: Events) -> SavedArrays:
    return {f"{name}.{column}": getattr(events, column) for column in "txyp"}


def _events(name: str, arrays: SavedArrays, sensor: tuple[int, int]) -> Events:
    t, x, y, p = (arrays[f"{name}.{column}"] for column in "txyp")
    return Events(t, x, y, p, *sensor)


def _sensor(value: Any) -> tuple[int, int]:
    width, height = (_whole("sensor", side, 1, 1 << 16) for side in value)
    if width * height > MOST_PIXELS:
        _refuse("sensor", value, f"at most {MOST_PIXELS} pixels")
    return width, height


def _rate(value: Any) -> Rate:
    rate_hz = _fraction(value) if isinstance(value, str) else value
    if type(rate_hz) not in (int, float, Fraction):
        _refuse("rate", value, "a number")
    Grid.of_rate(rate_hz, 0)
    return rate_hz


def _fraction(text: Any) -> Fraction:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,400}(/[0-9]{1,400})?", text):  # "1e999999999" would fill the memory
        _refuse("a fraction", text, "digits, or digits/digits")
    return Fraction(text)


def _time(name: str, value: Any) -> int:
    return _whole(name, value, -LATEST_US, LATEST_US)


def _count(name: str, value: Any) -> int:
    return _whole(name, value, 0, LATEST_US)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:  # True is no number here
        _refuse(name, value, f"a whole number from {low} to {high}")
    return value


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    raise ValueError(f"{name} is {str(value)[:100]}, expected {expected}")
