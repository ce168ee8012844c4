"""How many frames a worker gives a training, by processor time, for each way to store a recording: `python -m benchmarks.loader`.

Clips of the recipes gen1 (21 frames) and 1mpx (10, at half resolution), cut, augmented and joined as in a training. Made of the clips in
../shared: a real drive of Gen1 (1.3 M events/s), and two of 1 Mpx, one calm (0.1 M events/s), one a busy drive (25 M events/s), each
repeated until it is long enough. The ways take turns, so that a machine that is busy with other things hits all of them alike. Beside it,
what one of eight A100 would take of the recipe's model in bf16, an estimate of `saccade train --plan`, and how many workers would feed it.
"""

import lzma
import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from saccade.config import presets as detectors
from saccade.datasets.lanes import Lanes
from saccade.datasets.loader import collate
from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.datasets.recording import Sampling
from saccade.events.open import open_events
from saccade.events.write import write_events
from saccade.training.plan import AHEAD, PROCESS_MB, plan_training
from saccade.training.settings import TrainingSettings, presets
from saccade.types import Events
from tests.datasets.make import records

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
ROUNDS, CLIPS = 3, 1


def repeated(path: Path, seconds: float) -> Events:
    """All events of a recording, again and again."""
    with open_events(path) as reader:
        portions = list(reader)
        width, height = reader.width, reader.height
    t, x, y, p = (np.concatenate([getattr(events, name) for events in portions]) for name in ("t", "x", "y", "p"))
    t = t - t[0]
    span = int(t[-1]) + 1
    times = max(1, round(seconds * 1e6 / span))
    shifted = (t[None] + span * np.arange(times)[:, None]).ravel()
    return Events(shifted, np.tile(x, times), np.tile(y, times), np.tile(p, times), width, height)


def datasets(folder: Path) -> list[tuple[str, str, Path]]:
    """(what, recipe, folder) of one recording each, labelled twice a second."""
    calm = folder / "calm.dat"
    calm.write_bytes(lzma.decompress((SHARED / "prophesee" / "imx636_10.8s.dat.xz").read_bytes()))
    found = []
    for what, recipe, source, seconds in (
        ("Gen1, drive", "gen1", SHARED / "gen1" / "clip_td.dat", 2.5),
        ("1 Mpx, calm", "1mpx", calm, 2.5),
        ("1 Mpx, busy drive", "1mpx", SHARED / "prophesee" / "driving_1mpx_8.8ms_evt3.raw", 0.8),
    ):
        place = folder / what.replace(" ", "").replace(",", "_") / "train"
        place.mkdir(parents=True)
        events = repeated(source, seconds)
        write_events([events], place / "one_td.dat")
        end_us = int(events.t[-1])
        boxes = [(t, 100, 100, 100, 100, 0, 1) for t in range(600_000, end_us, 500_000)]
        np.save(place / "one_bbox.npy", records(boxes))
        found.append((what, recipe, place.parent))
    return found


def ways(root: Path, recipe: str, settings: TrainingSettings) -> dict[str, Lanes]:
    """The same clips from DAT, from prepared events and from prepared frames."""
    sampling = Sampling.of(detectors[settings.model]())
    raw = open_dataset(root, "train", recipe, halve=settings.halved)  # type: ignore[arg-type]
    found = {"DAT": raw}
    for what in ("events", "frames"):
        prepare(raw, root / what, sampling, what=what, processes=1)  # type: ignore[arg-type]
        found[what] = open_dataset(root / what, "train")
    lanes = replace(settings.lanes, kind="random")
    return {name: Lanes(data, sampling, lanes, lanes=4, length=settings.length, seed=0) for name, data in found.items()}


def main() -> None:
    print("| recording | MB/s of DAT | frames/s of a worker: DAT, prepared events, frames | an A100 takes | workers each | GB each |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as temporary:
        for what, recipe, root in datasets(Path(temporary)):
            settings = replace(presets[recipe](), precision="bf16")
            rates: dict[str, list[float]] = {}
            sources = ways(root, recipe, settings)
            for turn in range(ROUNDS + 1):
                for name, lanes in sources.items():
                    started = time.process_time()
                    for lane in range(CLIPS):
                        collate([lanes.clip(lane, turn)], lanes.height, lanes.width, 32 * settings.split)
                    if turn:  # the first compiles and writes an index
                        rates.setdefault(name, []).append(CLIPS * settings.length / (time.process_time() - started))
            path = root / "train" / "one_td.dat"
            data = next(iter(sources.values())).dataset
            seconds = len(data.recordings[0].ends_us(Sampling())) * 0.05
            plan = plan_training(data, settings, "a100", gpus=8, seconds=0.0)
            found = [float(np.median(rates[name])) for name in ("DAT", "events", "frames")]
            workers = [math.ceil(plan.eaten_rate / rate) for rate in found]
            worker_gb = PROCESS_MB / 1e3 + AHEAD * plan.batch_bytes / 1e9
            columns = [
                what, f"{path.stat().st_size / 1e6 / seconds:.1f}", ", ".join(f"{rate:,.0f}" for rate in found), f"{plan.eaten_rate:,.0f}",
                ", ".join(str(count) for count in workers), f"{worker_gb:.2f}",
            ]  # fmt: skip
            print(f"| {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
