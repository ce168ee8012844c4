"""The screen recording of docs/live.md: `python -m examples.record_page docs/live.webp`; Chromium looks at the real page, the slider moves.

In slow motion, so that a slow machine shows what a fast one would: the rate counts answers per second of event time.
"""

import argparse
import io
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from PIL import Image

from saccade.commands.live import LEAST_SCORE
from saccade.events.open import open_events
from saccade.live.panel import warm_up
from saccade.live.server import listen, make_server, page_address
from saccade.live.session import Session
from saccade.samples import STREET
from saccade.sources.source import Replay
from saccade.stream.stream import Stream

SIZE = {"width": 1200, "height": 650}
PHONE = {"width": 390, "height": 844}
RATES_HZ = (20, 200, 1000, 20)
MOVES = 3  # pictures while the slider is on its way
STEP_US = 20_000  # of event time between pictures


def move(page: Any, rate_hz: float) -> None:
    page.locator("#rate").evaluate(
        "(slider, rate) => { slider.value = 100 * Math.log10(rate);"
        " slider.dispatchEvent(new Event('input')); slider.dispatchEvent(new Event('change')); }",
        rate_hz,
    )


def shots(page: Any, session: Session, pictures: int) -> list[Image.Image]:
    """The slider is moved from rate to rate and rests there; each picture a little later in event time."""
    taken: list[Image.Image] = []

    def take(rate_hz: float) -> None:
        move(page, rate_hz)
        until_us = session.now_us() + STEP_US
        while until_us - 5 * STEP_US < session.now_us() < until_us:  # a recording that begins again is behind
            time.sleep(0.02)
        taken.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))

    for before_hz, rate_hz in zip((RATES_HZ[0], *RATES_HZ), RATES_HZ, strict=False):
        for part in range(1, MOVES + 1) if before_hz != rate_hz else ():
            take(before_hz * (rate_hz / before_hz) ** (part / MOVES))
        for _ in range(pictures):
            take(rate_hz)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--beside", default="rvt-nano")
    parser.add_argument("--speed", type=float, default=0.05)
    parser.add_argument("--pictures", type=int, default=7, help="at each rate")
    parser.add_argument("--phone", type=Path, help="a picture of the dark page on a phone, too")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    streams = {name: Stream(name, RATES_HZ[0], score=LEAST_SCORE, threads=1) for name in ("nano", options.beside) if name}
    for stream in streams.values():
        warm_up(stream, (160, 128))
    with listen("127.0.0.1", 0) as listener, tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        session = Session("street", Replay(open_events(STREET), options.speed), streams, repeats=True, folder=Path(folder))
        server = make_server(session)
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        session.start()
        serving.start()
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"], timeout=300_000)
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(300_000)
        page.goto(page_address(listener, None))
        while session.now_us() < 700_000:  # tracks have begun
            time.sleep(0.1)
        taken = shots(page, session, options.pictures)
        if options.phone is not None:
            small = browser.new_page(viewport=PHONE, color_scheme="dark")
            small.goto(page_address(listener, None), timeout=300_000)
            small.locator("article").nth(len(streams) - 1).wait_for(timeout=300_000)
            small.screenshot(path=options.phone, full_page=True)
        browser.close()
        server.should_exit = True
        serving.join()
        session.close()
    taken = [picture.resize((picture.width * 4 // 5, picture.height * 4 // 5), Image.Resampling.LANCZOS) for picture in taken]
    taken[0].save(options.out, save_all=True, append_images=taken[1:], duration=250, loop=0, quality=30, method=6)
    print(f"{options.out}: {len(taken)} pictures, {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
