"""What pages cost the stream: `python -m benchmarks.pages`, steps with ten pages open against none, in turns of a few seconds in one run.

`nano` on the sample recording, asked for more than it can do (1000 Hz), so that whatever takes the processor or Python's lock costs steps.
Pages are programs in a process of their own that ask for the next picture a sixtieth of a second after the last, as a browser does.
Steps per second of the clock and per CPU second of the serving process are compared turn by turn; the median ratio is printed.
"""

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from statistics import median

from saccade.events.open import open_events
from saccade.live.server import listen, make_server
from saccade.live.session import Session
from saccade.machine import keep_freed_memory
from saccade.samples import STREET
from saccade.sources.source import Replay
from saccade.stream.stream import Stream

FRAME_S = 1 / 60


async def page(address: str) -> None:
    from websockets.asyncio.client import connect

    async with connect(address, max_size=None) as socket:
        while True:
            await socket.send('{"do":"ready"}')
            await socket.recv()
            await asyncio.sleep(FRAME_S)


async def pages(address: str, count: int) -> None:
    await asyncio.gather(*(page(address) for _ in range(count)))


def turn(session: Session, address: str, count: int, seconds: float) -> tuple[float, float]:
    """Steps per second, and per CPU second of this process, with COUNT pages open."""
    looking = subprocess.Popen([sys.executable, "-m", "benchmarks.pages", "--look", address, "--pages", str(count)]) if count else None
    try:
        time.sleep(3.0 if count else 0.5)  # pages connect
        panel = session.panels[0]
        steps, began_s, cpu_s = panel.figures()["steps"], time.perf_counter(), time.process_time()
        time.sleep(seconds)
        steps = panel.figures()["steps"] - steps
        return steps / (time.perf_counter() - began_s), steps / (time.process_time() - cpu_s)
    finally:
        if looking is not None:
            looking.kill()
            looking.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a turn")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--look", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look:
        asyncio.run(pages(options.look, options.pages))
        return
    keep_freed_memory()
    with listen("127.0.0.1", 0) as listener:
        session = Session("street", Replay(open_events(STREET)), {"nano": Stream("nano", options.rate, threads=1)}, repeats=True)
        server = make_server(session)
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        session.start()
        serving.start()
        address = f"ws://127.0.0.1:{listener.getsockname()[1]}/socket"
        turn(session, address, 0, 2.0)  # compiles, and warms up
        clock, cpu = [], []
        print(
            f"| turn | steps/s, no page | {options.pages} pages | ratio | steps per CPU second, no page | {options.pages} pages | ratio |"
        )
        print("|--:|--:|--:|--:|--:|--:|--:|")
        for number in range(options.turns):
            order = (0, options.pages) if number % 2 == 0 else (options.pages, 0)
            found = {count: turn(session, address, count, options.seconds) for count in order}
            (alone, alone_cpu), (watched, watched_cpu) = found[0], found[options.pages]
            clock.append(watched / alone)
            cpu.append(watched_cpu / alone_cpu)
            print(
                f"| {number + 1} | {alone:.0f} | {watched:.0f} | {clock[-1]:.3f} | {alone_cpu:.0f} | {watched_cpu:.0f} | {cpu[-1]:.3f} |",
                flush=True,
            )
        print(f"median ratio: {median(clock):.3f} by the clock, {median(cpu):.3f} by CPU time")
        server.should_exit = True
        serving.join()
        session.close()


if __name__ == "__main__":
    main()
