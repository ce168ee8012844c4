"""STREAM <-> FILE: safetensors with a JSON description; no file can run code, and none is half written."""

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from saccade.config import DetectorConfig
from saccade.detection.track import Motion, Tracker, TrackStates
from saccade.files import check_readable, replacing
from saccade.model.stepping import History
from saccade.representation.windows import Waiting
from saccade.types import Events, InputError, Window

if TYPE_CHECKING:
    from saccade.stream.stream import Stream

FORMAT = "1"
SavedArrays = dict[str, np.ndarray]


def save(stream: "Stream", path: Path) -> None:
    arrays: SavedArrays = {}
    waiting, windows, engine = stream._intake.cutter.state(), stream._windows, stream._engine
    notes: dict[str, Any] = {
        "config": stream.runtime.config.to_json(),
        "settings": _settings(stream),
        "step_us": str(stream._intake.cutter.grid.step_us),
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
        notes["history"] = [history.ends_us, history.depths, history.began_us]
        for number, state in enumerate(history.states):
            arrays |= {f"state.{number}.{name}": array for name, array in stream.runtime.state_to_arrays(state).items()}
    if stream.tracker is not None:
        notes["tracker"] = [stream.tracker.next_id, stream.tracker.time_us]
        motion, *columns = stream.tracker.tracks
        arrays |= {f"tracks.{number}": column for number, column in enumerate((*motion, *columns))}
    with replacing(path) as temporary:
        save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, {"stream": FORMAT, "notes": json.dumps(notes)}
        )


def restore(stream: "Stream", path: Path) -> None:
    """The stream is untouched until the whole file has proved to be right."""
    check_readable(path)
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("stream") != FORMAT:
                raise InputError(f"{path}: not the state of a stream that this saccade wrote (format {metadata.get('stream')})")
            notes = json.loads(metadata["notes"])
            _check(stream, path, notes)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        _fill(stream, notes, arrays)
    except (SafetensorError, OSError, json.JSONDecodeError, KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, InputError) and str(error).startswith(str(path)):
            raise
        raise InputError(f"{path}: damaged or cut off ({error}); begin anew with reset()") from error


def _settings(stream: "Stream") -> dict[str, Any]:
    return {"window": stream.window, "stepping": stream.stepping, "counts": stream.counts, "reset_every": stream.reset_every,
            "tracker": stream.tracker is not None, **vars(stream.timing)}  # fmt: skip


def _check(stream: "Stream", path: Path, notes: dict[str, Any]) -> None:
    if DetectorConfig.from_json(notes["config"]) != stream.runtime.config:
        raise InputError(
            f"{path}: the state of another detector than {stream.runtime.config.name}; open the stream with the one it was saved with"
        )
    own, saved = _settings(stream), {"counts": "plain"} | notes["settings"]  # which was the only way before there was a choice
    other = [f"{name}={saved.get(name)!r}, not {value!r}" for name, value in own.items() if saved.get(name) != value]
    if other:
        raise InputError(f"{path}: saved by a stream with {', '.join(other)}; make one with the same settings")


def _fill(stream: "Stream", notes: dict[str, Any], arrays: SavedArrays) -> None:
    width, height = notes.get("sensor", [None, None])
    waiting = Waiting(None, *notes["waiting"])
    held = None
    if width is not None:
        waiting = waiting._replace(events=_events("waiting", arrays, width, height))
        held = _events("pieces", arrays, width, height)
    waiting = waiting._replace(unreported=[(int(mark), int(count)) for mark, count in waiting.unreported])
    pieces, first = [], 0
    for start_us, end_us, count in notes["pieces"]:
        assert held is not None
        part = held[first : first + count]
        pieces.append(Window(part.t, part.x, part.y, part.p, width, height, start_us, end_us))
        first += count
    tracks = _tracks(arrays) if stream.tracker is not None else None
    states = _states(stream, notes, arrays, width, height) if "history" in notes else None

    stream.reset()
    rate = 1_000_000 / Fraction(notes["step_us"])
    stream._rate_hz = float(rate) if float(rate).is_integer() else rate
    stream._begin()
    stream._counted.restore(notes["counters"])
    stream._intake.cutter.restore(waiting)
    stream._intake.size = stream._intake.size if width is None else (width, height)
    stream._windows.pieces.extend(pieces)
    stream._windows.taken_us, stream._windows.since, stream._windows.unseen = notes["recent"]
    if states is not None:
        ends_us, depths, began_us = notes["history"]
        history = stream.engine(width, height).history
        stream.engine(width, height).history = History(
            history.window_us, history.stepping, history.reset_every, tuple(ends_us), tuple(states), tuple(depths), began_us
        )
    if isinstance(stream.tracker, Tracker) and tracks is not None:
        stream.tracker.tracks = tracks
        stream.tracker.next_id, stream.tracker.time_us = notes["tracker"]


def _states(stream: "Stream", notes: dict[str, Any], arrays: SavedArrays, width: int, height: int) -> list[Any]:
    """Only states of the shape that this network has for this sensor: a wrong one would fail in the middle of a stream."""
    canvas = stream.engine(width, height).canvas
    expected = stream.runtime.state_to_arrays(stream.runtime.initial_state(canvas.height, canvas.width))
    states = []
    for number in range(len(notes["history"][0])):
        own = {name: arrays[f"state.{number}.{name}"] for name in expected}
        for name, array in own.items():
            if array.shape != expected[name].shape or array.dtype != expected[name].dtype:
                raise ValueError(f"{name} is {array.dtype} {array.shape}, expected {expected[name].dtype} {expected[name].shape}")
        states.append(stream.runtime.state_from_arrays(own))
    return states


def _tracks(arrays: SavedArrays) -> TrackStates:
    columns = [arrays[f"tracks.{number}"] for number in range(len(Motion._fields) + len(TrackStates._fields) - 1)]
    return TrackStates(Motion(*columns[: len(Motion._fields)]), *columns[len(Motion._fields) :])


def _columns(name: str, events: Events) -> SavedArrays:
    return {f"{name}.{column}": getattr(events, column) for column in "txyp"}


def _events(name: str, arrays: SavedArrays, width: int, height: int) -> Events:
    t, x, y, p = (arrays[f"{name}.{column}"] for column in "txyp")
    return Events(t, x, y, p, width, height)
