"""From a recording in Gen1's own layout to weights, as a person types it: the command under torchrun, two processes, real events."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saccade.training.log import read_metrics
from saccade.weights.load import load_detector


@pytest.mark.thorough
def test_two_processes_train_on_a_real_recording(tmp_path: Path, shared: Path) -> None:
    """Six clips of five frames: unequal shares, an ordered lane beside random ones, every layer of the nano model."""
    for split in ("train", "val"):
        place = tmp_path / "gen1" / split
        place.mkdir(parents=True)
        name = f"17-03-30_12-53-58_{split}"
        (place / f"{name}_td.dat").symlink_to(shared / "data" / "gen1" / "clip_td.dat")
        shutil.copy(shared / "data" / "gen1" / "clip_bbox_hand.npy", place / f"{name}_bbox.npy")
    out = tmp_path / "run"
    options = "--model s5-vit-nano --steps 2 --batch 3 --length 5 --workers 0 --threads 1 --device cpu"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "saccade.cli", "train"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, str(tmp_path / "gen1"), str(out), "gen1", *options.split()],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("mAP") == 1  # one process speaks
    rows = read_metrics(out / "metrics.jsonl")
    assert [(row["kind"], row["step"]) for row in rows] == [
        ("train", 1), ("train", 2), ("validation", 2), ("validation", 2)  # by the usual protocol, and by the recipe's final one
    ]  # fmt: skip
    assert all(np.isfinite(row["total"]) and row["positives"] > 0 for row in rows[:2])
    config = load_detector(out / "final.safetensors").config
    assert (config.classes, config.trained_size) == (("car", "pedestrian"), (304, 240))
