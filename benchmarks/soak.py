"""`saccade live` for an hour: `python -m benchmarks.soak --minutes 60`, `street` at 200 Hz with two pages open in Chromium (or programs).

Every minute a line: memory of the process, steps, and what was merged, late, dropped or lost, as the page shows them. At the end the
recording is paused: then every event that the source delivered must have been counted by the stream, and memory must not have grown.
"""

import argparse
import json
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from websockets.sync.client import ClientConnection, connect

WARM_S = 120.0  # until memory counts: compiled code, pools and caches are made
GROWTH = 0.05  # of memory that is still flat


def look(page: ClientConnection) -> dict[str, Any]:
    page.send('{"do":"ready"}')
    message = page.recv(timeout=120)
    while isinstance(message, str):
        message = page.recv(timeout=120)
    (length,) = struct.unpack_from("<I", message)
    return json.loads(message[4 : 4 + length])


def open_pages(stack: ExitStack, address: str) -> list[Any]:
    """Two tabs, if there is a browser."""
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None:
        print("no Chromium: two programs look instead")
        return []
    from playwright.sync_api import sync_playwright

    opened = stack.enter_context(sync_playwright()).chromium.launch(executable_path=browser, args=["--no-sandbox"], timeout=300_000)
    stack.callback(opened.close)
    tabs = [opened.new_context().new_page() for _ in range(2)]
    for tab in tabs:
        tab.set_default_timeout(300_000)
        tab.goto(address)
    return tabs


def line(minutes: float, seen: dict[str, Any], tabs: list[Any]) -> str:
    panel = seen["panels"][0]
    shown = [tab.locator("[data-figure=shown_p50_ms], [data-figure=shown_p99_ms]").all_inner_texts() for tab in tabs]
    told = f"{panel['latency_p50_ms']} / {panel['latency_p99_ms']} | {'; '.join(' / '.join(one) for one in shown) or '-'}"
    lost = [panel[name] for name in ("merged_windows", "unseen_events", "late_events", "dropped_events", "lost_packets", "bad_portions")]
    return (
        f"| {minutes:.1f} | {seen['memory_mb']} | {panel['steps']:,} | {panel['reached_hz']:.0f} | {told} | {' / '.join(map(str, lost))} |"
    )


def settled(page: ClientConnection) -> dict[str, Any]:
    """The last picture of a paused session."""
    page.send('{"do":"pause"}')
    before = None
    while True:
        time.sleep(3)
        seen = look(page)
        if before is not None and (seen["events"], seen["panels"][0]["events"]) == before:
            return seen
        before = (seen["events"], seen["panels"][0]["events"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--source", default="street")
    options = parser.parse_args()
    command = [sys.executable, "-m", "saccade.cli", "live", options.source, "--rate", str(options.rate), "--port", "0", "--threads", "1"]
    with ExitStack() as stack, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        stack.callback(serving.kill)
        assert serving.stdout is not None
        address = serving.stdout.readline().strip()
        tabs = open_pages(stack, address)
        page = stack.enter_context(connect(address.replace("http", "ws") + "socket", max_size=None))
        print("| min | MB | steps | Hz | latency p50 / p99, ms | on the pages | merged / unseen / late / dropped / lost / damaged |")
        print("|--:|--:|--:|--:|--:|--:|--:|")
        began_s, memory = time.monotonic(), []
        while (passed_s := time.monotonic() - began_s) < 60 * options.minutes:
            seen = look(page)
            if passed_s > WARM_S:
                memory.append(seen["memory_mb"])
            print(line(passed_s / 60, seen, tabs), flush=True)
            time.sleep(min(60.0, max(60 * options.minutes - passed_s, 0.1)))
        seen = settled(page)
        steps, merged = (seen["panels"][0][name] for name in ("steps", "merged_windows"))
        print(
            f"{options.rate:g} Hz asked, {options.rate * steps / (steps + merged):.1f} reached: {steps:,} steps, {merged:,} windows merged"
        )
        counted = sum(seen["panels"][0][name] for name in ("events", "dropped_events"))
        third = max(len(memory) // 3, 1)
        first, last = (sum(part) / len(part) for part in (memory[:third], memory[-third:]))
        print(
            f"{seen['events']:,} events delivered, {counted:,} counted: {'nothing' if counted == seen['events'] else 'SOME'} lost silently"
        )
        print(f"memory: {first:.0f} MB in the first third, {last:.0f} in the last: {'flat' if last < first * (1 + GROWTH) else 'IT GREW'}")
        serving.send_signal(signal.SIGINT)
        print(serving.communicate(timeout=120)[0])


if __name__ == "__main__":
    main()
