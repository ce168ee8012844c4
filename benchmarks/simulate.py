"""Simulated seconds per second of processor time, and the events' statistics beside those of a real recording."""

import lzma
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.events.open import open_events
from saccade.simulate.cutouts import Cutouts, PhotosConfig, photo_set, prepare_cutouts
from saccade.simulate.photo_scene import draw_sensor, make_photo_scene
from saccade.simulate.photos import PhotoSet
from saccade.simulate.plan import make_scene
from saccade.simulate.simulation import simulate
from saccade.types import Events

SHARED = Path(__file__).parents[2] / "shared"
REAL = {"Gen1": "gen1/clip_td.dat", "DAVIS346": "davis346_cars/cars.aedat4", "IMX636": "prophesee/imx636_10.8s.dat.xz"}
PHOTOS = SHARED / "photos/photos_val.json"
SECONDS = 8.0
PHOTO_SECONDS = 4.0
LIKE_S = 2.36  # the length of the DAVIS346 clip
SEEN_WIDTH = 288  # px, about what `nano` is shown


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
    for name, events in _real():
        print(row(f"{name}, real", habits(events)))
        if name == "Gen1":
            print(row("Gen1, duplicates removed", habits(without_duplicates(events))))
    for name, moves in (("simulated, camera moves", True), ("simulated, camera stands", False)):
        found = [habits(Events.join(list(simulate(make_scene(seed, 304, 240, 1.24, camera_moves=moves))))) for seed in range(12)]
        values = [np.median([getattr(one, field) for one in found], axis=0) for field in Habits.__dataclass_fields__]
        print(row(name, Habits(*values)))


def _real() -> Iterator[tuple[str, Events]]:
    for name, place in REAL.items():
        path = SHARED / "data" / place
        if not path.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            if path.suffix == ".xz":
                unpacked = Path(folder) / path.stem
                unpacked.write_bytes(lzma.decompress(path.read_bytes()))
                path = unpacked
            with open_events(path) as reader:
                yield name, reader.between(reader.start_us, reader.end_us + 1)


def ranges(number: int = 200) -> None:
    """Each statistic of real recordings beside its range over photographs seen by drawn sensors, as long and at the size that nano sees."""
    photos, cutouts = _photos()
    found = [
        _flat(habits(events))
        for seed in range(number)
        if len(events := Events.join(list(simulate(make_photo_scene(seed, photos, cutouts, seconds=LIKE_S), draw_sensor(seed))))) > 100
    ]
    low, middle, high = np.quantile(found, [0, 0.5, 1], axis=0)
    real = [(name, np.array([_flat(habits(part)) for part in _as_seen(events)])) for name, events in _real()]
    heads = (f"{name} ({len(values)} of {LIKE_S:g} s)" for name, values in real)
    print(f"\n| statistic | lowest of {len(found)} | median | highest | {' | '.join(heads)} | inside |")
    print("|---|--:|--:|--:|" + "--:|" * len(real) + "---|")
    intervals = [f"ms between events, {part} %" for part in (5, 25, 50, 75, 95)]
    names = ["events / pixel / s", "brighter", *intervals, "same polarity", "pixels with events", "busiest 1 %, /s"]
    for i, name in enumerate(names):
        outside = [which for which, values in real if not (low[i] <= values[:, i].min() and values[:, i].max() <= high[i])]
        values = " | ".join("-".join(f"{value:.3g}" for value in sorted({values[:, i].min(), values[:, i].max()})) for _, values in real)
        print(
            f"| {name} | {low[i]:.3g} | {middle[i]:.3g} | {high[i]:.3g} | {values} | {'not ' + ', '.join(outside) if outside else 'yes'} |"
        )


def _as_seen(events: Events) -> Iterator[Events]:
    """Portions as long as the drawn recordings (a shorter recording is one), large sensors scaled down by whole numbers."""
    step = max(round(events.width / SEEN_WIDTH), 1)
    size = (-(-events.width // step), -(-events.height // step))
    events = Events(events.t, events.x // np.uint16(step), events.y // np.uint16(step), events.p, *size)
    first, last = int(events.t[0]), int(events.t[-1])
    for start_us in range(first, max(last - int(LIKE_S * 1e6), first) + 1, int(LIKE_S * 1e6)):
        yield events[slice(*np.searchsorted(events.t, (start_us, start_us + LIKE_S * 1e6)))]


def _flat(found: Habits) -> np.ndarray:
    return np.concatenate([np.atleast_1d(getattr(found, name)) for name in Habits.__dataclass_fields__])


def _photos() -> tuple[PhotoSet, Cutouts]:
    photos = photo_set(str(PHOTOS), ())
    with tempfile.TemporaryDirectory() as folder:
        config = PhotosConfig(labels=str(PHOTOS), digest=photos.digest, cutouts=200)
        return photos, prepare_cutouts(Path(folder) / "cutouts.npz", config)


def photo_speed() -> None:
    photos, cutouts = _photos()
    print("\n| photographs, 160 x 128 | simulated s per processor s |")
    print("|---|--:|")
    spent = []
    for seed in range(25):
        before = time.process_time()
        scene = make_photo_scene(seed, photos, cutouts, seconds=PHOTO_SECONDS)
        for chunk in simulate(scene, draw_sensor(seed)):
            assert chunk.width
        scene.truth(np.arange(0, scene.duration_us + 1, 5000))
        spent.append(time.process_time() - before)
    print(
        f"| as they come, {len(spent) - 1} recordings | {PHOTO_SECONDS * (len(spent) - 1) / sum(spent[1:]):.1f} |"
    )  # the first one compiles


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
    if PHOTOS.exists():
        ranges()
        photo_speed()
