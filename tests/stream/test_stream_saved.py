"""A stream that was saved and restored goes on as if nothing had happened."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from saccade.stream.intake import Timing
from saccade.stream.stream import Stream
from saccade.types import InputError
from tests.stream.streams import EVERYTHING, assert_same, detector, events, portions

OPTIONS = {**EVERYTHING, "tracker": True, "timing": Timing(slack_us=3_000)}


@pytest.mark.parametrize(("name", "stepping", "window", "counts"), [
    ("s5-vit-nano", "interleaved", "sliding", "plain"), ("rvt-nano", "direct", "disjoint", "scaled"),
    ("gs5-vit-nano", "direct", "sliding", "plain"),
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


def test_files_from_before_counts_could_be_scaled_are_plain(tmp_path: Path) -> None:
    Stream(detector(), 20, **OPTIONS).save(tmp_path / "new")
    with safe_open(tmp_path / "new", framework="np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    notes = json.loads(metadata["notes"])
    del notes["settings"]["counts"]
    save_file(arrays, tmp_path / "old", {**metadata, "notes": json.dumps(notes)})
    other = Stream(detector(), 50, **OPTIONS)
    other.restore(tmp_path / "old")
    assert other.rate_hz == 20
    with pytest.raises(InputError, match="counts='plain', not 'scaled'"):
        Stream(detector(), **OPTIONS, counts="scaled").restore(tmp_path / "old")


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
        "counts='plain', not 'scaled'": Stream(detector(), **OPTIONS, counts="scaled"),
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
