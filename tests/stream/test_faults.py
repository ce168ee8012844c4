"""What goes wrong in the middle of a stream is named with its place or skipped and counted; what was found before stays."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from saccade.sources.source import Replay
from saccade.stream.live import LiveSettings
from saccade.stream.stream import Stream
from saccade.types import Detections, Events, InputError
from tests.stream.streams import EVERYTHING, Idle, Script, assert_same, detector, events

HOUR_US = 3_600_000_000
FIRST = events(500, start_us=10 * HOUR_US, span_us=100_000)


def other_sensor() -> Events:
    return events(100, start_us=10 * HOUR_US + 100_000, span_us=50_000, width=32)


def rogue_event() -> Events:
    """One time inside of it is an hour ahead."""
    portion = events(100, start_us=10 * HOUR_US + 100_000, span_us=50_000)
    t = portion.t.copy()
    t[50] += HOUR_US
    return Events(t, portion.x, portion.y, portion.p, portion.width, portion.height)


@pytest.mark.parametrize(("bad", "what"), [(other_sensor(), "sensor changed"), (rogue_event(), "time jumps")])
def test_a_corrupt_portion_is_named_or_left_out(bad: Events, what: str) -> None:
    last = events(500, start_us=10 * HOUR_US + 150_000, span_us=100_000)
    for live in (False, True):
        source = Script(FIRST, bad, last)
        source.live = live
        found: list[Detections] = []
        with pytest.raises(InputError, match=rf"portion 2, after 500 events, at \d+ us: .*{what}"):
            found.extend(Stream(Idle(), 100).run(source))
        skipping = Stream(detector(), 100, faults="skip", **EVERYTHING)
        kept = list(skipping.run(Events.join([FIRST, last])))
        skipping.reset()
        source.closed = False
        skipped = [one for portion in (FIRST, bad, last) for one in skipping.push(portion)] + skipping.finish()
        assert_same(skipped, kept, 0)
        assert skipping.counters.bad_portions == 1
        if not live:
            assert len(found) == 9, "what was complete before"


@pytest.mark.parametrize("jump_us", [-HOUR_US, HOUR_US, -5_000_000])
def test_time_that_jumps_is_named_or_begins_anew(jump_us: int) -> None:
    after = Events(FIRST.t + jump_us, FIRST.x, FIRST.y, FIRST.p, FIRST.width, FIRST.height)
    stream = Stream(Idle(), 100)
    before = stream.push(FIRST)
    with pytest.raises(InputError, match=rf"portion 2.*time jumps from {FIRST.t[-1]} to .*faults=\"skip\""):
        stream.push(after)
    again = Stream(detector(), 100, faults="skip", tracker=True, **EVERYTHING)
    found = again.push(FIRST) + again.push(after) + again.finish()
    alone = Stream(detector(), 100, **EVERYTHING)
    expected = alone.push(FIRST) + alone.finish()
    alone.reset()
    expected += alone.push(after) + alone.finish()
    assert_same(found, expected, 0)
    assert again.counters.restarts == 1
    assert len(before) == 9


def test_a_pause_that_is_believed_is_answered() -> None:
    after = Events(FIRST.t + 60_000_000, FIRST.x, FIRST.y, FIRST.p, FIRST.width, FIRST.height)
    stream = Stream(Idle(), 20)
    ends = [one.time_us for one in stream.push(Events.join([FIRST, after]))]
    assert set(np.diff(ends)) == {50_000}
    assert len(ends) > 1200


@pytest.mark.parametrize("live", [False, True])
def test_a_source_that_breaks_ends_with_what_it_gave(live: bool) -> None:
    source = Script(FIRST, InputError("cable.raw: cut off at byte 7"))
    source.live, options = live, {"live": LiveSettings(patience_us=10**9, overload="wait")}
    found: list[Detections] = []
    with pytest.raises(InputError, match=r"portion 1, after 500 events.*cable.raw: cut off at byte 7"):
        found.extend(Stream(Idle(), 100, **options).run(source))
    assert len(found) == 9
    skipping = Stream(Idle(), 100, faults="skip", **options)
    assert len(list(skipping.run(source))) == 10
    assert skipping.counters.bad_portions == 1
    with pytest.raises(RuntimeError, match="driver"):
        list(Stream(Idle(), 100).run(Script(FIRST, RuntimeError("driver"))))


def test_a_source_that_stalls_for_too_long_is_named() -> None:
    found: list[Detections] = []
    began_s = time.perf_counter()
    with pytest.raises(InputError, match=r"nothing came from script for 0.3 s"):
        found.extend(Stream(Idle(), 100, live=LiveSettings(stall_s=0.3, overload="wait")).run(Script(FIRST, 60.0)))
    assert time.perf_counter() - began_s < 5
    assert len(found) >= 9
    with pytest.raises(InputError, match="nothing came"):
        list(Stream(Idle(), 100, live=LiveSettings(stall_s=0.2)).run(Script(60.0)))


def test_whoever_stops_listening_closes_the_source() -> None:
    source = Replay(events(10_000, span_us=60_000_000))
    running = Stream(Idle(), 100).run(source)
    next(running)
    running.close()
    assert source.closed


PROGRAM = """
import json, signal, sys
from saccade.sources.source import Replay
from saccade.stream.stream import Stream
from tests.stream.streams import Idle, events
signal.signal(signal.SIGINT, signal.default_int_handler)
with open(sys.argv[1], "w", buffering=1) as out:
    for found in Stream(Idle(), 100).run(Replay(events(100_000, span_us=60_000_000))):
        print(json.dumps({"time_us": found.time_us}), file=out)
        if found.time_us >= 300_000:
            print("going", flush=True)
"""


def test_ctrl_c_ends_at_once_and_leaves_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "going"
    process.send_signal(signal.SIGINT)
    began_s = time.perf_counter()
    _, errors = process.communicate(timeout=60)
    assert time.perf_counter() - began_s < 15
    assert "KeyboardInterrupt" in errors
    times = [json.loads(line)["time_us"] for line in path.read_text().splitlines()]
    assert times[-1] >= 300_000
    assert (np.diff(times) > 0).all()
