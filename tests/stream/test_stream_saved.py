"""A stream that was saved and restored goes on as if nothing had happened; a file that is refused changes nothing."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from saccade.representation.canvas import Canvas
from saccade.stream.intake import Timing
from saccade.stream.saved import digest
from saccade.stream.stream import Stream
from saccade.types import Detections, Events, InputError
from tests.stream.streams import EVERYTHING, Remembering, assert_same, detector, events, portions

OPTIONS = {**EVERYTHING, "tracker": True, "timing": Timing(slack_us=3_000)}


@pytest.mark.parametrize(("name", "stepping", "window", "counts"), [
    ("s5-vit-nano", "interleaved", "sliding", "plain"), ("rvt-nano", "direct", "disjoint", "held"),
    ("gs5-vit-nano", "direct", "sliding", "plain"), ("red-nano", "interleaved", "sliding", "plain"),
])  # fmt: skip
def test_restored_is_never_interrupted(tmp_path: Path, name: str, stepping: str, window: str, counts: str) -> None:
    whole = portions(events(4000, span_us=300_000), 30)
    options = {**OPTIONS, "stepping": stepping, "window": window, "counts": counts}
    stream = Stream(detector(name), 30, **options)
    for portion in whole[:12]:
        stream.push(portion)
    stream.rate_hz = 120
    for portion in whole[12:15]:
        stream.push(portion)
    stream.save(tmp_path / "stream.safetensors")
    other = Stream(detector(name), 20, **options)
    other.push(events(50))
    other.restore(tmp_path / "stream.safetensors")
    assert other.rate_hz == 120
    assert other.counters.events == stream.counters.events
    for portion in whole[15:]:
        assert_same(other.push(portion), expected := stream.push(portion), 0)
        assert all(len(one) for one in expected)
    last, expected = other.finish(), stream.finish()
    assert_same(last, expected, 0)
    for one, two in zip(last, expected, strict=True):
        np.testing.assert_array_equal(one.tracks, two.tracks)


def test_a_stream_that_saw_nothing_can_be_saved(tmp_path: Path) -> None:
    Stream(detector(), 20, **OPTIONS).save(tmp_path / "empty")
    other = Stream(detector(), 50, **OPTIONS)
    other.restore(tmp_path / "empty")
    assert other.rate_hz == 20
    assert other.push(events())


def test_files_from_before_counts_could_be_held_are_plain(tmp_path: Path) -> None:
    Stream(detector(), 20, **OPTIONS, window="disjoint", counts="plain").save(tmp_path / "new")
    with safe_open(tmp_path / "new", framework="np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    notes = json.loads(metadata["notes"])
    for name in ("rate_hz", "wanted_hz"):
        del notes[name]
    del notes["settings"]["counts"], notes["counters"]["foreign_packets"], metadata["digest"]
    save_file(arrays, tmp_path / "old", {**metadata, "notes": json.dumps(notes)})
    other = Stream(detector(), 50, **OPTIONS, window="disjoint", counts="plain")
    other.restore(tmp_path / "old")
    assert other.rate_hz == 20
    with pytest.raises(InputError, match="counts='plain', not 'held'"):
        Stream(detector(), **OPTIONS, window="disjoint").restore(tmp_path / "old")


def test_counts_of_windows_as_long_as_in_training_are_the_same_ones(tmp_path: Path) -> None:
    Stream(detector(), 20, **OPTIONS, counts="plain").save(tmp_path / "stream")
    Stream(detector(), 20, **OPTIONS).restore(tmp_path / "stream")


def test_files_of_others_are_refused_and_leave_the_stream_as_it_was(tmp_path: Path) -> None:
    path, whole = tmp_path / "stream", events(span_us=200_000)
    stream = Stream(detector(), 20, **OPTIONS)
    stream.push(whole)
    stream.save(path)
    content = path.read_bytes()
    with safe_open(path, framework="np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for match, other in {
        "another detector": Stream(detector("rvt-nano"), **OPTIONS),
        "settings": Stream(detector(), **{**OPTIONS, "timing": Timing(slack_us=1)}),
        "window='sliding', not 'disjoint'": Stream(detector(), **OPTIONS, window="disjoint"),
    }.items():
        with pytest.raises(InputError, match=match):
            other.restore(path)
    counted = stream.counters.events
    damaged = {"cut": content[: len(content) // 2], "short": content[:4], "text": b"no stream at all"}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
    notes = json.loads(metadata["notes"])
    first = next(name for name in arrays if name.startswith("state.0"))
    for name, wrong in {
        "shape": ({**arrays, first: arrays[first][..., :1]}, notes),
        "missing": ({key: arrays[key] for key in arrays if key != "pieces.t"}, notes),
        "key": (arrays, {key: notes[key] for key in notes if key != "waiting"}), "count": (arrays, {**notes, "pieces": [[0, 1, "x"]]}),
    }.items():  # fmt: skip
        save_file(
            {key: np.ascontiguousarray(value) for key, value in wrong[0].items()},
            tmp_path / name,
            {**metadata, "notes": json.dumps(wrong[1])},
        )
    for name in (*damaged, "shape", "missing", "key", "count"):
        with pytest.raises(InputError, match=name):  # the message begins with the path
            stream.restore(tmp_path / name)
        assert stream.counters.events == counted
    with pytest.raises(InputError, match="no such file"):
        stream.restore(tmp_path / "nothing")
    assert [one.name for one in tmp_path.iterdir() if "part" in one.name] == []


def quick(stepping: str = "interleaved", window: str = "sliding", faults: str = "skip", **options: Any) -> Stream:
    timing = Timing(slack_us=2_000, max_gap_us=1_000_000)
    return Stream(Remembering(), 30, stepping=stepping, window=window, faults=faults, tracker=True, timing=timing, **options)


def act(stream: Stream, what: str, argument: Any) -> list[Detections]:
    if what == "rate":
        stream.rate_hz = argument
        return []
    return stream.push(argument) if what == "push" else stream.advance_to(argument)


def random_acts(random: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Portions with disorder, damage and jumps of time, silence, and changes of rate that no window takes yet."""
    now_us = int(random.integers(0, 10**12))
    for seed in range(int(random.integers(2, 14))):
        what = random.choice(["push", "push", "push", "rate", "rate", "clock"])
        if what == "rate":
            yield "rate", [60, 120.5, 29.97, Fraction(30_000, 1001), 7][int(random.integers(5))]
            continue
        span_us = int(random.integers(1, 120_000))
        if what == "clock":
            yield "clock", now_us + span_us
        else:
            jump_us = int(random.choice([0, 0, 0, 0, 0, 5_000_000, -5_000_000]))
            part = events(int(random.integers(0, 120)), start_us=max(now_us + jump_us, 0), span_us=span_us, seed=seed)
            yield "push", part[random.permutation(len(part))] if random.random() < 0.3 else part
            now_us += jump_us
        now_us += span_us


@pytest.mark.parametrize("seed", range(60))
def test_saved_and_restored_at_any_moment_is_never_interrupted(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    options = {"stepping": ["direct", "interleaved"][seed % 2], "window": ["sliding", "disjoint"][seed // 2 % 2]}
    whole, other = quick(**options), quick(**options)
    for what, argument in random_acts(random):
        assert_equal_tracks(act(other, what, argument), act(whole, what, argument))
        if random.random() < 0.5:
            other.save(tmp_path / "state")
            other = quick(**options)
            other.restore(tmp_path / "state")
        assert other.rate_hz == whole.rate_hz
        assert without_latency(other) == without_latency(whole)
    assert_equal_tracks(other.finish(), whole.finish())


def assert_equal_tracks(found: list[Detections], expected: list[Detections]) -> None:
    assert_same(found, expected, 0)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.tracks, two.tracks)


def without_latency(stream: Stream) -> dict[str, int]:
    return {name: number for name, number in asdict(stream.counters).items() if not name.startswith("latency")}


def test_a_rate_that_no_window_has_taken_survives_reset_and_restore(tmp_path: Path) -> None:
    stream = quick()
    stream.push(events(200, span_us=100_000))
    stream.rate_hz = 29.97
    stream.save(tmp_path / "state")
    other = quick()
    other.restore(tmp_path / "state")
    assert other.rate_hz == 29.97
    stream.reset()
    assert stream.rate_hz == 29.97


def test_a_first_portion_that_was_refused_is_not_a_beginning(tmp_path: Path) -> None:
    stream, other = quick(), quick()
    part = events(100, start_us=10**12, span_us=50_000)
    jump = Events(part.t + np.arange(100) // 50 * 10**7, part.x, part.y, part.p, part.width, part.height)
    stream.push(jump)
    assert stream.counters.bad_portions == 1
    stream.save(tmp_path / "state")
    other.restore(tmp_path / "state")
    assert_equal_tracks(other.push(part), stream.push(part))
    assert without_latency(other) == without_latency(stream)


def test_a_good_file_for_another_sensor_or_canvas_is_not_called_damaged(tmp_path: Path) -> None:
    stream = quick()
    stream.push(events(500, span_us=100_000))
    stream.save(tmp_path / "state")
    larger = events(500, span_us=100_000, width=128, height=96)
    running = quick()
    running.push(larger)
    for other in (running, quick(width=128, height=96), quick(canvas=Canvas.pad(128, 96))):
        with pytest.raises(InputError, match=r"state: saved for a sensor of 64 x 32, this stream has one of 128 x 96; reset\(\) it"):
            other.restore(tmp_path / "state")
    with pytest.raises(InputError, match=r"saved with a canvas of \[64, 32, 1.0\], not \[64, 64, 1.0\]"):
        quick(canvas=Canvas.pad(64, 32, 64)).restore(tmp_path / "state")
    running.reset()
    running.restore(tmp_path / "state")
    assert_equal_tracks(running.finish(), stream.finish())


ODD = (
    None,
    True,
    -1,
    0,
    1,
    7,
    1.5,
    float("nan"),
    1 << 70,
    -(1 << 62),
    10**15,
    "x",
    "0",
    "1/0",
    "1e999999999",
    "-3/7",
    [],
    [[]],
    {},
    {"a": 1},
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in items for found in leaves(inner, (*path, key)))]


def mutated(random: np.random.Generator, notes: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, dict[str, np.ndarray]]:
    """One value of the notes replaced, moved by one, repeated or gone, or one array of another type, length or content."""
    notes, arrays = copy.deepcopy(notes), dict(arrays)
    if random.random() < 0.7:
        top = [name for name in notes if name not in ("config",)]
        name = top[int(random.integers(len(top)))]
        paths = leaves(notes[name], (name,))
        *parents, key = paths[int(random.integers(len(paths)))]
        home = notes
        for parent in parents:
            home = home[parent]
        how = random.choice(["odd", "odd", "near", "gone", "twice"])
        if how == "gone":
            del home[key]
        elif how == "twice" and isinstance(home, list):
            home.insert(key, copy.deepcopy(home[key]))
        elif how == "near" and type(home[key]) is int:
            home[key] += int(random.choice([-1, 1]))
        else:
            home[key] = ODD[int(random.integers(len(ODD)))]
        return notes, arrays
    name = sorted(arrays)[int(random.integers(len(arrays)))]
    array = arrays[name]
    how = random.choice(["gone", "type", "short", "shape", "bytes", "fill", "more"])
    if how == "gone":
        del arrays[name]
    elif how == "more":
        arrays[str(random.choice(["new", "state.99.state", "tracks.99", "waiting.z"]))] = array
    elif how == "bytes" and array.dtype != np.bool_ and array.nbytes:
        data = bytearray(array.tobytes())
        data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        arrays[name] = np.frombuffer(bytes(data), array.dtype).reshape(array.shape)
    elif how == "fill" and array.dtype != np.bool_:
        arrays[name] = np.full_like(array, np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max)
    else:
        arrays[name] = {"short": array[:-1], "shape": array[None]}.get(str(how), array.astype(np.float32))
    return notes, arrays


def contents(path: Path) -> tuple[dict[str, str], Any, dict[str, np.ndarray]]:
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return file.metadata(), json.loads(file.metadata()["notes"]), arrays


@pytest.mark.parametrize("stepping", ["direct", "interleaved"])
@pytest.mark.parametrize("signed", [False, True], ids=["file of before", "checksum"])
def test_a_damaged_file_restores_equal_or_leaves_the_stream_untouched(stepping: str, signed: bool, tmp_path: Path) -> None:
    """Without a checksum, or with one that fits, values that agree with each other are taken: then the stream holds just these."""
    stream, random = quick(stepping), np.random.default_rng(0)
    for number, portion in enumerate(portions(events(3000, start_us=10**9, span_us=500_000), 12)):
        stream.push(portion[::-1] if number == 5 else portion)
    stream.rate_hz = Fraction(30_000, 1001)
    stream.save(tmp_path / "good")
    metadata, notes, arrays = contents(tmp_path / "good")
    assert all(len(notes[name]) for name in ("pieces", "history", "tracker", "sensor"))
    assert len(arrays["waiting.t"])
    assert len(arrays["tracks.0"])
    following = events(50, start_us=10**9 + 500_000, span_us=60_000, seed=3)

    own, refused = quick(stepping), 0
    own.push(events(700, start_us=10**9, span_us=200_000, seed=9))
    own.save(tmp_path / "own")
    before, counted = contents(tmp_path / "own")[0], without_latency(own)  # with the checksum of all arrays
    for trial in range(250):
        wrong_notes, wrong_arrays = mutated(random, notes, arrays)
        text = json.dumps(wrong_notes)
        wrong_arrays = {name: np.ascontiguousarray(array) for name, array in wrong_arrays.items()}
        stated = {"stream": metadata["stream"], "notes": text}
        if signed:
            stated["digest"] = metadata["digest"] if trial % 2 else digest(text, wrong_arrays)
        save_file(wrong_arrays, tmp_path / "bad", stated)
        try:
            own.restore(tmp_path / "bad")
        except InputError as error:
            refused += 1
            assert str(error).startswith(str(tmp_path / "bad"))
            own.save(tmp_path / "after")
            assert contents(tmp_path / "after")[0] == before
            assert without_latency(own) == counted
            continue
        own.save(tmp_path / "after")
        _, new_notes, new_arrays = contents(tmp_path / "after")
        for name in ("step_us", "wanted_hz", "waiting", "pieces", "recent", "sensor", "history", "tracker"):
            assert new_notes.get(name) == wrong_notes.get(name), name
        assert new_notes["counters"] == {name: wrong_notes["counters"].get(name, 0) for name in new_notes["counters"]}
        assert {name: array.tobytes() for name, array in new_arrays.items()} == {name: a.tobytes() for name, a in wrong_arrays.items()}
        if signed and trial % 2:
            assert (new_notes, stated["digest"]) == (notes, digest(text, wrong_arrays))
        with suppress(InputError):
            own.push(following)
            own.finish()
        own = quick(stepping)
        own.restore(tmp_path / "own")
    assert 100 < refused < 250
    expected = quick(stepping)
    expected.restore(tmp_path / "own")
    assert_equal_tracks(own.push(following), expected.push(following))
