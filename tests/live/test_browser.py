"""The live page in a real browser, Chromium: moving the slider changes the measured rate, a source that dies is shown, a reload goes on."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from saccade.events.open import open_events
from saccade.events.write import write_events
from saccade.sources.network import Tcp
from saccade.sources.send import send_events
from saccade.sources.source import Replay
from tests.live.pages import served, session_of
from tests.stream.streams import events

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
MOST_MS = 240_000  # CI may be busy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; `apt-get install chromium`")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright; `pip install playwright`")
    with playwright.sync_playwright() as running:
        try:
            opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MOST_MS)
        except playwright.Error as error:
            pytest.skip(f"Chromium doesn't start here: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab; what its script throws, or asks of another host, fails the test."""
    tab = browser.new_page()
    tab.set_default_timeout(MOST_MS)
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "console", lambda message: problems.append(message.text) if message.type == "error" and "WebSocket" not in message.text else None
    )
    tab.on("request", lambda request: None if request.url.startswith(("http://127.0.0.1", "data:")) else problems.append(request.url))
    yield tab
    tab.close()
    assert not problems


def reached(page: Any, panel: int = 0) -> float:
    """0 before the first answers."""
    return float(page.locator("[data-figure=reached_hz]").nth(panel).inner_text().removesuffix(" Hz").replace("–", "") or 0)


def until(happened: Callable[[], object]) -> None:
    end_s = time.monotonic() + MOST_MS / 1000
    while not happened():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.05)


def move(page: Any, rate_hz: float) -> None:
    """The slider, as a hand would: it is logarithmic, from 1 (0) to 1000 Hz (300)."""
    page.locator("#rate").evaluate(
        "(slider, rate) => { slider.value = 100 * Math.log10(rate);"
        " slider.dispatchEvent(new Event('input')); slider.dispatchEvent(new Event('change')); }",
        rate_hz,
    )


def test_the_slider_changes_the_rate_and_a_reload_goes_on(page: Any) -> None:
    with served(session_of(Replay(events(20_000, span_us=600_000_000), speed=0.2), rate_hz=20, panels=2)) as here:
        page.goto(here.address)
        until(lambda: page.locator("article").count() == 2)
        until(lambda: 0 < reached(page) < 25 and 0 < reached(page, 1) < 25)
        move(page, 200)
        until(lambda: reached(page) > 40 and reached(page, 1) > 40)
        assert page.locator("#rate-shown").inner_text() == "200 Hz"
        page.reload()
        until(lambda: page.locator("article").count() == 2 and reached(page) > 40)
        assert page.locator("#rate-shown").inner_text() == "200 Hz", "the rate is the stream's, not the page's"
        page.keyboard.press("ArrowDown")
        until(lambda: here.session.rate_hz < 200)
        page.keyboard.press(" ")
        until(lambda: page.locator("#state").inner_text() == "paused" and page.locator("#pause").inner_text() == "Play")
        page.locator("#pause").click()
        until(lambda: not here.session.playback.paused)
        page.locator("[data-rate='20']").click()
        until(lambda: here.session.rate_hz == 20 and page.locator("#rate-shown").inner_text() == "20 Hz")
        page.keyboard.press("ArrowUp")
        until(lambda: here.session.rate_hz > 20)  # a button has the focus, and needs no arrows
        page.locator("#speed").select_option("0.1")
        until(lambda: here.session.playback.speed == 0.1)


def test_a_source_that_dies_and_a_server_that_ends_are_shown(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.live.session.SILENT_S", 0.5)
    source = Tcp(0, faults="skip", lasting=True)
    with served(session_of(source)) as here:
        page.goto(here.address)
        until(lambda: "waiting" in page.locator("#state").inner_text())
        assert not page.locator("#playback").is_visible(), "a live source can't be paused"
        send_events(Replay(events(4000, span_us=300_000)), f"tcp://127.0.0.1:{source.port}")
        until(lambda: "silent" in page.locator("#state").inner_text())
        drawn = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(value => value)"
        assert page.locator("article canvas").evaluate(drawn)
    until(lambda: "no connection" in page.locator("#state").inner_text())


def test_place_window_and_saving(page: Any, tmp_path: Path) -> None:
    write_events(events(20_000, span_us=60_000_000), tmp_path / "drive.h5")
    (tmp_path / "saved").mkdir()
    session = session_of(Replay(open_events(tmp_path / "drive.h5")), rate_hz=20, measure=lambda: (0, 60_000_000), folder=tmp_path / "saved")
    with served(session) as here:
        page.goto(here.address)
        until(lambda: page.locator("#place-row").is_visible())
        page.locator("#place").evaluate(
            "place => { place.value = 40; place.dispatchEvent(new Event('input')); place.dispatchEvent(new Event('change')); }"
        )
        until(lambda: session.now_us() >= 40_000_000)
        page.keyboard.press("Home")
        until(lambda: session.now_us() < 39_000_000)
        page.locator("#window").select_option("disjoint")
        page.locator("#stepping").select_option("interleaved")
        until(lambda: session.panels[0].stream.ways == ("disjoint", "interleaved"))
        until(lambda: " MB" in page.locator("#memory").inner_text())
        page.keyboard.press("s")
        until(lambda: page.locator("#save").inner_text() == "Stop saving")
        until(lambda: session.saving is not None and session.saving._put > 0)
        page.locator("#save").click()
        until(lambda: page.locator("#saved a").count() == 3)
        with page.expect_download() as started:
            page.locator("#saved a").nth(1).click()
        assert started.value.suggested_filename.endswith(".jsonl")


def test_figures_fit_on_a_phone(browser: Any) -> None:
    """No sideways scrolling, in light and dark, with two detectors."""
    with served(session_of(Replay(events(20_000, span_us=60_000_000)), panels=2)) as here:
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)
            tab.goto(here.address, timeout=MOST_MS)
            until(lambda tab=tab: tab.locator("article").count() == 2)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            tab.close()
