"""The live page without a browser: a real server, real connections. Who may look, what is sent, what a page can change."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from saccade.events.open import open_events
from saccade.events.write import write_events
from saccade.live.panel import Branch, warm_up
from saccade.live.server import is_loopback, own_address
from saccade.live.session import Session
from saccade.sources.network import Tcp
from saccade.sources.send import send_events
from saccade.sources.source import Replay
from saccade.stream.stream import Stream
from saccade.types import Events
from tests.live.pages import Served, look, look_until, read, served, session_of
from tests.make.events import assert_equal
from tests.sources.test_sources import wait_for
from tests.stream.streams import Idle, events

FOLDER = Path(__file__).parents[2] / "saccade/live"


def test_the_page_is_three_files_and_nothing_comes_from_elsewhere() -> None:
    with served(session_of()) as page, httpx.Client(base_url=page.address) as client:
        for path, kind in {"/": "text/html", "/live.css": "text/css", "/live.js": "text/javascript"}.items():
            answer = client.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kind)
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert not re.search(r"https?://|@import|url\(", answer.text)
        assert client.get("/session.py").status_code == 404
        html = client.get("/").text
    identifiers = set(re.findall(r'id="([\w-]+)"', html))
    asked = set(re.findall(r'element\("([\w-]+)"\)', (FOLDER / "live.js").read_text()))
    assert asked <= identifiers


def test_other_sites_and_other_names_of_this_machine_are_refused() -> None:
    with served(session_of()) as page:
        own = page.address.rstrip("/")
        assert httpx.get(page.address, headers={"Host": "evil.example"}).status_code == 403
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": own + "0"}):
            with pytest.raises(InvalidStatus), page.socket(additional_headers=headers):
                pass
        with page.socket(additional_headers={"Origin": own}) as browser, page.socket() as program:
            assert look(browser)["source"] == look(program)["source"] == "drive.raw"


def test_a_token_is_needed_where_there_is_one() -> None:
    with served(session_of(), token="secret") as page:
        bare = Served(page.session, page.address.split("?")[0])
        assert page.address.endswith("/?token=secret")
        assert httpx.get(page.address, headers={"Host": "camera.example:8600"}).status_code == 200
        for wrong in ("", "?token=", "?token=secrets", "?token=%ff"):
            assert httpx.get(bare.address + wrong).status_code == 403
            with pytest.raises(InvalidStatus), Served(page.session, bare.address + wrong).socket():
                pass
        with page.socket() as viewer:
            assert look(viewer)["source"] == "drive.raw"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_these_hosts_are_this_machine_only(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "localhost.example", "127.0.0.1.example"])
def test_these_are_not(host: str) -> None:
    assert not is_loopback(host)


def test_others_reach_this_machine_by_one_of_its_own_addresses() -> None:
    assert own_address() not in ("0.0.0.0", "::", "")


def test_a_picture_has_events_boxes_and_figures_of_every_detector() -> None:
    with served(session_of(panels=2)) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: all(panel["reached_hz"] > 0 for panel in seen["panels"]))
        viewer.send('{"do":"ready"}')
        seen, pixels = read(viewer.recv(timeout=60))
        assert [panel["name"] for panel in seen["panels"]] == ["idle 0", "idle 1"]
        assert len(seen["boxes"]) == 2
        assert pixels.shape == (seen["height"], seen["width"]) == (32, 64)
        assert pixels.any() or seen["state"] == "ended"
        assert {"merged_windows", "late_events", "dropped_events", "latency_p50_ms", "latency_p99_ms"} <= seen["panels"][0].keys()


def test_the_rate_acts_while_it_runs() -> None:
    with served(session_of(Replay(events(20_000, span_us=60_000_000), speed=0.2), rate_hz=20.0, panels=2)) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: all(0 < panel["reached_hz"] < 25 for panel in seen["panels"]))
        viewer.send(json.dumps({"do": "rate", "value": 200}))
        seen = look_until(viewer, lambda seen: all(panel["reached_hz"] > 40 for panel in seen["panels"]))
        assert seen["rate_hz"] == 200
        viewer.send(json.dumps({"do": "rate", "value": 5}))
        assert look_until(viewer, lambda seen: all(panel["reached_hz"] < 10 for panel in seen["panels"]))["rate_hz"] == 5


@pytest.mark.parametrize(
    "wish",
    [
        "", "x", "[]", "1", "{}", "[" * 900, '{"do": "fly"}', '{"do": ["rate"]}', '{"do": "rate"}', '{"do": "rate", "value": 0}',
        '{"do": "rate", "value": 1e999}', '{"do": "rate", "value": "9"}', '{"do": "rate", "value": NaN}', '{"do": "speed", "value": -1}',
    ],
)  # fmt: skip
def test_a_wrong_wish_is_answered_and_changes_nothing(wish: str, shared_page: Served) -> None:
    with shared_page.socket() as viewer:
        viewer.send(wish)
        assert json.loads(viewer.recv(timeout=60))["problem"]
        assert look(viewer)["rate_hz"] == 50


@pytest.mark.parametrize("message", [b"\0" * 8, "x" * 5000], ids=["bytes", "too long"])
def test_what_no_page_sends_ends_that_connection_only(message: str | bytes, shared_page: Served) -> None:
    with shared_page.socket() as rude, shared_page.socket() as other:
        rude.send(message)
        with pytest.raises(ConnectionClosed):
            rude.recv(timeout=60)
        assert look(other)["rate_hz"] == 50


@pytest.fixture(scope="module")
def shared_page():
    with served(session_of(Replay(events(20_000, span_us=600_000_000)))) as page:
        yield page


def test_a_page_that_does_not_ask_gets_nothing_and_holds_up_nobody() -> None:
    with served(session_of(Replay(events(20_000, span_us=60_000_000)))) as page, page.socket() as slow, page.socket() as quick:
        look(slow)
        began_us = look(quick)["time_us"]
        look_until(quick, lambda seen: seen["time_us"] > began_us + 500_000)
        with pytest.raises(TimeoutError):
            slow.recv(timeout=0.05)
        assert look(slow)["time_us"] > began_us + 500_000, "then it gets the newest, not what it has missed"


def still(viewer: ClientConnection) -> int:
    """Time of a paused session: what was on its way has arrived when nothing changes any more."""
    time_us = -1
    for _ in range(200):
        before_us, time_us = time_us, look(viewer)["time_us"]
        if time_us == before_us:
            return time_us
        time.sleep(0.3)
    raise AssertionError("it goes on")


def test_recordings_can_be_paused_stepped_and_slowed_down() -> None:
    with served(session_of(Replay(events(20_000, span_us=60_000_000)), rate_hz=10)) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: seen["boxes"][0] or seen["time_us"] > 300_000)
        viewer.send('{"do": "pause"}')
        look_until(viewer, lambda seen: seen["state"] == "paused")
        stopped_us = still(viewer)
        viewer.send('{"do": "step"}')
        seen = look_until(viewer, lambda seen: seen["time_us"] > stopped_us + 50_000)
        assert seen["time_us"] < stopped_us + 200_000
        assert seen["state"] == "paused"
        viewer.send('{"do": "speed", "value": 2}')
        assert look_until(viewer, lambda seen: seen["speed"] == 2)["state"] == "paused"
        viewer.send('{"do": "play"}')
        look_until(viewer, lambda seen: seen["time_us"] > stopped_us + 500_000)


def test_a_recording_begins_again_and_what_was_counted_stays() -> None:
    session = session_of(Replay(events(2000, span_us=300_000), speed=5), repeats=True)
    with served(session) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: seen["round"] > 2 and seen["state"] == "playing" and seen["panels"][0]["events"] > 2000)
        assert session.panels[0].stream.counters.restarts == 0
    assert not session.ended or session.problem == ""
    counted = session.panels[0].counters
    assert counted.events > 2000, "of all rounds, where the stream has those of this one"
    assert counted.latency_p99_ms > 0


def test_a_stream_that_is_warmed_up_begins_with_nothing() -> None:
    runtime = Idle()
    stream = Stream(runtime, 200.0)
    for sensor in ((64, 32), None):
        before = runtime.dt
        warm_up(stream, sensor)
        assert runtime.dt > before, "it has computed"
    assert (stream.counters.events, stream.counters.steps) == (0, 0)
    stream.push(events(100, span_us=20_000))
    assert stream.sensor == (64, 32)


class Sluggish(Idle):
    def step(self, frame: np.ndarray, state: Any, dt: float) -> Any:
        time.sleep(0.02)
        return super().step(frame, state, dt)


def test_pages_take_little_from_a_detector_that_cannot_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a share of nothing they still get four pictures a second."""
    monkeypatch.setattr("saccade.live.server.SHARE", 0.0)
    source = Replay(events(20_000, span_us=60_000_000))
    session = Session("drive.raw", source, {"slow": Stream(Sluggish(), 1000, faults="skip")})
    with served(session) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: session.behind)
        began_s = time.monotonic()
        assert all(look(viewer)["panels"] for _ in range(4))
        assert time.monotonic() - began_s > 0.7


def test_rounds_that_a_slow_detector_has_no_time_for_are_dropped_and_counted() -> None:
    """Found by an hour's run on a busy machine: rounds piled up without a limit."""
    branch, part = Branch("drive.raw", most=250), events(100)
    for _ in range(4):
        branch.put(part)
        branch.put(None)
    assert branch.dropped == 200
    assert [sum(map(len, branch)) for _ in range(4)] == [0, 0, 100, 100], "every round still ends"
    branch.put(part)
    branch.put(None)
    assert len(list(branch)) == 1


def test_a_recording_that_ends_is_shown_as_ended() -> None:
    with served(session_of(Replay(events(2000, span_us=100_000)))) as page, page.socket() as viewer:
        assert look_until(viewer, lambda seen: seen["state"] == "ended")["problem"] == ""
    with page.session.source:
        assert page.session.panels[0].found is not None


def test_a_sender_that_leaves_is_shown_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.live.session.SILENT_S", 0.3)
    source = Tcp(0, faults="skip", lasting=True)
    with served(session_of(source)) as page, page.socket() as viewer:
        assert look(viewer)["state"] == "waiting"
        for first_us in (0, 2_000_000):
            send_events(Replay(events(4000, start_us=first_us, span_us=300_000)), f"tcp://127.0.0.1:{source.port}")
            look_until(viewer, lambda seen, first_us=first_us: seen["time_us"] > first_us + 250_000)
            look_until(viewer, lambda seen: seen["state"] == "silent")
        for wish in ('{"do": "pause"}', '{"do": "step"}', '{"do": "speed", "value": 2}'):
            viewer.send(wish)
            assert "only recordings" in json.loads(viewer.recv(timeout=60))["problem"]
        assert look(viewer)["speed"] == 1


def on_disk(folder: Path, span_us: int = 2_000_000, **options: float) -> tuple[Replay, Callable[[], tuple[int, int]]]:
    """A recording that plays, and what measures it."""
    path = folder / "drive.h5"
    write_events(events(20_000, span_us=span_us, start_us=5_000_000), path)
    return Replay(open_events(path), **options), lambda: (5_000_000, 5_000_000 + span_us)


def test_a_place_of_a_recording_can_be_sought(tmp_path: Path) -> None:
    """While it plays and while it is paused, forward and back; memory and tracks begin anew, and nothing counts as a jump of time."""
    source, measure = on_disk(tmp_path, span_us=60_000_000)
    with served(session_of(source, rate_hz=20, measure=measure)) as page, page.socket() as viewer:
        seen = look_until(viewer, lambda seen: seen["end_us"] is not None and seen["time_us"] > 5_100_000)
        assert (seen["start_us"], seen["end_us"]) == (5_000_000, 65_000_000)
        viewer.send('{"do": "seek", "value": 30}')
        look_until(viewer, lambda seen: 35_000_000 <= seen["time_us"] < 45_000_000)
        viewer.send('{"do": "pause"}')
        look_until(viewer, lambda seen: seen["state"] == "paused")
        viewer.send('{"do": "seek", "value": 10}')
        seen = look_until(viewer, lambda seen: 15_000_000 <= seen["time_us"] < 16_000_000)
        assert seen["state"] == "paused"
        assert seen["round"] == 1
        assert page.session.panels[0].stream.counters.restarts == 0
        for wrong in ("-1", "61", "NaN"):
            viewer.send(f'{{"do": "seek", "value": {wrong}}}')
            assert "expected 0 to 60" in json.loads(viewer.recv(timeout=60))["problem"]


def test_windows_and_stepping_can_be_chosen_while_it_runs() -> None:
    with served(session_of(Replay(events(20_000, span_us=60_000_000)), panels=2)) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: seen["window"] == "sliding" and seen["panels"][0]["reached_hz"] > 0)
        viewer.send('{"do": "window", "value": "disjoint"}')
        viewer.send('{"do": "stepping", "value": "interleaved"}')
        seen = look_until(viewer, lambda seen: (seen["window"], seen["stepping"]) == ("disjoint", "interleaved"))
        until = seen["time_us"] + 300_000
        look_until(viewer, lambda seen: seen["time_us"] > until)
        assert {panel.stream.window for panel in page.session.panels} == {"disjoint"}
        assert not any(panel.problem for panel in page.session.panels)
        viewer.send('{"do": "window", "value": "round"}')
        assert "expected sliding or disjoint" in json.loads(viewer.recv(timeout=60))["problem"]


def test_what_is_watched_is_saved(tmp_path: Path) -> None:
    """Events, lines and a video, from one press to the next; the files are complete, and offered to those who may look."""
    source, measure = on_disk(tmp_path, span_us=200_000_000)
    (tmp_path / "saved").mkdir()
    session = session_of(source, rate_hz=50, panels=2, measure=measure, folder=tmp_path / "saved")
    with served(session) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: seen["panels"][0]["reached_hz"] > 0)
        viewer.send('{"do": "save", "value": 0.3}')
        began_us = look_until(viewer, lambda seen: seen["saving"] and seen["saving"]["state"] == "saving")["time_us"]
        viewer.send('{"do": "save", "value": 0.3}')
        assert "still being written" in json.loads(viewer.recv(timeout=60))["problem"]
        steps = [panel["steps"] for panel in look(viewer)["panels"]]
        wait_for(lambda: all(panel.figures()["steps"] > before + 12 for panel, before in zip(session.panels, steps, strict=True)), 240)
        wait_for(lambda: session.now_us() > began_us + 400_000)
        viewer.send('{"do": "stop-saving"}')
        wait_for(lambda: session.saving is not None and session.saving.done, 240)
        seen = look_until(viewer, lambda seen: seen["saving"]["state"] == "saved")
        names = seen["saving"]["files"]
        assert seen["saving"]["problem"] == ""
        assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == sorted(names)
        assert [Path(name).suffix for name in names] == [".h5", ".jsonl", ".mp4", ".jsonl", ".mp4"]
        answer = httpx.get(f"{page.address}saved/{names[1]}")
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert len(lines) > 10
        assert httpx.get(f"{page.address}saved/drive.h5").status_code == 404
        assert httpx.get(f"{page.address}saved/..%2Fdrive.h5").status_code == 404
    with open_events(tmp_path / "saved" / names[0]) as saved, open_events(tmp_path / "drive.h5") as whole:
        kept = Events.join(list(saved))
        assert_equal(kept, whole.between(int(kept.t[0]), int(kept.t[-1]) + 1))
        assert kept.t[-1] - kept.t[0] > 300_000
    assert (tmp_path / "saved" / names[2]).read_bytes()[4:8] == b"ftyp"
    assert len(session.saved) == 5


def test_a_saving_ends_with_the_round_and_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.live.saving.has_video", lambda: False)
    session = session_of(Replay(events(2000, span_us=300_000), speed=1), repeats=True, folder=tmp_path)
    with served(session) as page, page.socket() as viewer:
        look_until(viewer, lambda seen: seen["state"] == "playing")
        viewer.send('{"do": "save", "value": 0.3}')
        seen = look_until(viewer, lambda seen: seen["saving"] and seen["saving"]["state"] == "saved")
        assert seen["saving"]["problem"] == ""
        assert len(session.saving.files) == 2 if session.saving else False

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("saccade.live.saving.write_events", full)
        viewer.send('{"do": "save", "value": 0.3}')
        seen = look_until(viewer, lambda seen: seen["saving"]["problem"])
        assert "No space left" in seen["saving"]["problem"]
        look_until(viewer, lambda now: now["round"] > seen["round"])


def test_nothing_can_be_saved_before_there_are_events(tmp_path: Path) -> None:
    source = Tcp(0, faults="skip", lasting=True)
    with served(session_of(source, folder=tmp_path)) as page, page.socket() as viewer:
        viewer.send('{"do": "save", "value": 0.3}')
        assert "no events to save" in json.loads(viewer.recv(timeout=60))["problem"]
        viewer.send('{"do": "seek", "value": 1}')
        assert "only recordings on disk" in json.loads(viewer.recv(timeout=60))["problem"]
