"""`saccade evaluate` at 200 Hz in one process, frames a second of CPU time, beside a default stream of the same recordings.

Both begin with their events on disk; the stream ends with tracks, evaluate with mAP, its intervals and the folder of results.
"""

import tempfile
import time
from pathlib import Path

import torch

import saccade
from saccade.machine import keep_freed_memory
from saccade.simulate.dataset import DatasetConfig, write_dataset

RATE_HZ = 200.0
ROUNDS = 3


def evaluated(folder: Path, out: Path) -> tuple[int, float]:
    """(frames, CPU seconds) of a whole evaluation."""
    began_s = time.process_time()
    found = saccade.evaluate("nano", folder, rates_hz=(RATE_HZ,), processes=1, out=out)
    return found.results[0].cost.frames, time.process_time() - began_s


def streamed(recordings: list[Path]) -> tuple[int, float]:
    began_s, frames = time.process_time(), 0
    for recording in recordings:
        frames += sum(1 for _ in saccade.Stream("nano", RATE_HZ, threads=1).run(recording))
    return frames, time.process_time() - began_s


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as place:
        recordings = write_dataset(Path(place) / "data", DatasetConfig(recordings=4, seconds=6.0, split="test"), 1)
        streamed(recordings[:1])  # compiles
        rows = [(evaluated(Path(place) / "data", Path(place) / f"out{turn}"), streamed(recordings)) for turn in range(ROUNDS)]
        (frames, spent_s), (steps, stream_s) = (min(column, key=lambda row: row[1]) for column in zip(*rows, strict=True))
    print("| nano, 160 x 128, 200 Hz, one thread | frames | frames a second |\n|---|--:|--:|")
    print(f"| `saccade evaluate`, processes=1 | {frames:,} | {frames / spent_s:.0f} |")
    print(f"| default stream | {steps:,} | {steps / stream_s:.0f} |")


if __name__ == "__main__":
    main()
