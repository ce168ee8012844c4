"""Frames from raw events against prepared ones, per second of recording, in the same run, one core: `python -m benchmarks.datasets`.

Random clips of 21 frames, as training reads them. Uses real recordings if ../shared is there, else a synthetic one.
"""

import lzma
import tempfile
import time
from pathlib import Path

import numpy as np

from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.datasets.recording import LabelledRecording, Sampling
from tests.datasets.make import records
from tests.make.events import random_events
from tests.make.prophesee import write_dat

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
LENGTH, CLIPS = 21, 12


def recordings(folder: Path) -> list[tuple[str, Path]]:
    """(what, data set) of one recording each."""
    found = []
    for what, first_us in (("gen1", 20_749_999), ("1mpx", 600_000)):
        place = folder / what / "train"
        place.mkdir(parents=True)
        path = place / "one_td.dat"
        if what == "gen1" and SHARED.is_dir():
            path.symlink_to(SHARED / "gen1" / "clip_td.dat")
        elif what == "gen1":
            write_dat(path, random_events(1_000_000, span_us=1_200_000, start_us=20_520_000))
        elif SHARED.is_dir():
            path.write_bytes(lzma.decompress((SHARED / "prophesee" / "imx636_10.8s.dat.xz").read_bytes()))
        else:
            continue
        np.save(place / "one_bbox.npy", records([(first_us, 100, 100, 100, 100, 0, 1)]))
        found.append((what, folder / what))
    return found


def milliseconds(recording: LabelledRecording, sampling: Sampling) -> float:
    """CPU time for a frame, the median over clips from all over the recording."""
    ends_us = recording.ends_us(sampling)
    places = np.linspace(0, max(len(ends_us) - LENGTH, 0), CLIPS).astype(int).tolist()
    spent = []
    for first in places:
        start = time.process_time()
        frames = recording.frames(ends_us[first : first + LENGTH], sampling)
        spent.append((time.process_time() - start) * 1000 / len(frames))
    return float(np.median(spent))


def main() -> None:
    print("| recording, rate | raw DAT, ms a frame | prepared frames | prepared events | DAT, MB | frames, MB | events, MB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as temporary:
        for what, root in recordings(Path(temporary)):
            raw = open_dataset(root, kind=what)  # type: ignore[arg-type]
            for rate_hz in (20.0, 200.0):
                sampling = Sampling(rate_hz=rate_hz)
                times, sizes = [milliseconds(raw.recordings[0], sampling)], [(root / "train" / "one_td.dat").stat().st_size / 1e6]
                for kept in ("frames", "events"):
                    out = root / f"{kept}{rate_hz:g}"
                    prepare(raw, out, sampling, what=kept, processes=1)  # type: ignore[arg-type]
                    times.append(milliseconds(open_dataset(out).recordings[0], sampling))
                    sizes.append((out / "train" / "one.h5").stat().st_size / 1e6)
                cells = [f"{value:.2f}" for value in times] + [f"{value:.1f}" for value in sizes]
                print(f"| {what}, {rate_hz:g} Hz | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
