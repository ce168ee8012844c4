"""Simulated seconds per second of processor time, and the events' statistics beside those of a real recording."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.events.open import open_events
from saccade.simulate.plan import make_scene
from saccade.simulate.simulation import simulate
from saccade.types import Events

CLIP = Path(__file__).parents[2] / "shared/data/gen1/clip_td.dat"
SECONDS = 8.0


@dataclass(frozen=True)
class Habits:
    """How a recording's events are distributed."""

    per_pixel_s: float
    brighter: float
    intervals_ms: np.ndarray  # 5, 25, 50, 75, 95 % of the times between events of one pixel
    same_polarity: float  # of an event and the one before at its pixel
    active: float  # fraction of pixels with any event
    busiest_s: float  # rate of the pixel that 1 % exceed


def habits(events: Events) -> Habits:
    seconds = (events.t[-1] - events.t[0]) * 1e-6
    pixel = events.y.astype(np.int64) * events.width + events.x
    order = np.lexsort((events.t, pixel))
    follows = np.diff(pixel[order]) == 0
    counts = np.bincount(pixel, minlength=events.width * events.height)
    return Habits(
        len(events) / seconds / len(counts),
        float(events.p.mean()),
        np.quantile(np.diff(events.t[order])[follows], [0.05, 0.25, 0.5, 0.75, 0.95]) * 1e-3,
        float((np.diff(events.p[order].astype(int)) == 0)[follows].mean()),
        float((counts > 0).mean()),
        float(np.quantile(counts / seconds, 0.99)),
    )


def without_duplicates(events: Events) -> Events:
    """14 % of Gen1's events are there twice."""
    place = (events.y.astype(np.int64) * events.width + events.x) * 2 + events.p
    order = np.lexsort((place, events.t))
    twice = (np.diff(events.t[order]) == 0) & (np.diff(place[order]) == 0)
    return events[np.sort(order[np.concatenate(([True], ~twice))])]


def row(name: str, found: Habits) -> str:
    intervals = ", ".join(f"{value:.3g}" for value in found.intervals_ms)
    return (
        f"| {name} | {found.per_pixel_s:.1f} | {100 * found.brighter:.0f} % | {intervals} | {100 * found.same_polarity:.0f} % "
        f"| {100 * found.active:.0f} % | {found.busiest_s:.0f} |"
    )


def compare() -> None:
    """At Gen1's size, 1.24 s like the clip; the median over 12 scenes of each kind."""
    print("| recording | events / pixel / s | brighter | ms between events of a pixel: 5, 25, 50, 75, 95 % | same polarity as before "
          "| pixels with events | rate of the busiest 1 %, /s |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|")
    if CLIP.exists():
        with open_events(CLIP) as reader:
            clip = reader.between(reader.start_us, reader.end_us + 1)
        print(row("Gen1 clip, real", habits(clip)))
        print(row("Gen1 clip, duplicates removed", habits(without_duplicates(clip))))
    for name, moves in (("simulated, camera moves", True), ("simulated, camera stands", False)):
        found = [habits(Events.join(list(simulate(make_scene(seed, 304, 240, 1.24, camera_moves=moves))))) for seed in range(12)]
        values = [np.median([getattr(one, field) for one in found], axis=0) for field in Habits.__dataclass_fields__]
        print(row(name, Habits(*values)))


def speed() -> None:
    for chunk in simulate(make_scene(1, seconds=0.1)):  # compiles
        assert chunk.width
    make_scene(1, seconds=0.1).truth(np.array([0]))
    print("\n| 160 x 128, scene, events and labels at 200 Hz | simulated s per processor s | slowest recording | events / s |")
    print("|---|--:|--:|--:|")
    for name, moves in (("camera stands", False), ("camera moves", True)):
        spent, events = [], 0
        for seed in range(12):
            before = time.process_time()
            scene = make_scene(seed, seconds=SECONDS, camera_moves=moves)
            events += sum(map(len, simulate(scene)))
            scene.truth(np.arange(0, scene.duration_us + 1, 5000))
            spent.append(time.process_time() - before)
        print(f"| {name} | {SECONDS * len(spent) / sum(spent):.1f} | {SECONDS / max(spent):.1f} | {events / SECONDS / len(spent):,.0f} |")


if __name__ == "__main__":
    compare()
    speed()
