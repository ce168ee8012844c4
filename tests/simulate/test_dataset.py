"""Data sets: the same bytes whatever happens on the way; labels and scene belong to the events."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from saccade.commands.simulate import simulate
from saccade.events.open import open_events
from saccade.simulate.dataset import DatasetConfig, read_config, read_truth, write_dataset
from saccade.types import InputError

SMALL = DatasetConfig(recordings=10, seconds=0.3, width=48, height=40)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "whole"
    write_dataset(folder, SMALL, processes=1)
    return folder


def test_every_recording_opens_with_its_labels(whole: Path) -> None:
    about = json.loads((whole / "dataset.json").read_text())
    assert {split: len(names) for split, names in about["splits"].items()} == {"train": 8, "val": 1, "test": 1}
    assert about["classes"] == ["car", "pedestrian", "two-wheeler"]
    seeds = set()
    for name in (name for names in about["splits"].values() for name in names):
        with open_events(whole / name) as reader:
            assert (reader.width, reader.height) == (48, 40)
            assert reader.start_us >= 0
            assert reader.end_us <= 300_000
        config = read_config(whole / name)
        seeds.add(config.seed)
        times_us, stored = read_truth(whole / name)
        assert np.array_equal(times_us, np.arange(0, 300_001, 5000))
        rebuilt = config.scene().truth(times_us)
        for item in fields(stored):
            assert np.array_equal(getattr(stored, item.name), getattr(rebuilt, item.name))
        assert len(stored.labels()) == len(stored.t)
    assert len(seeds) == 10


def test_what_was_interrupted_is_completed_to_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    done = []

    def give_up(path: str, seconds: float) -> None:
        done.append(path)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "set", SMALL, 1, give_up)
    assert len(list((tmp_path / "set").rglob("*.h5"))) == 4
    (tmp_path / "set/train/000000004_labels.npz").write_bytes(b"labels without events are made again")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").rglob("*.h5")}
    (tmp_path / "set/train/.000000004.h5.part.h5").write_bytes(b"of a run that was killed")
    write_dataset(tmp_path / "set", SMALL, 1)
    assert contents(tmp_path / "set") == contents(whole)
    assert all(path.stat().st_mtime_ns == modified for path, modified in before.items())


def test_the_number_of_processes_changes_no_byte(whole: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", SMALL, processes=2)
    assert contents(tmp_path / "set") == contents(whole)


def test_a_larger_data_set_holds_the_smaller(whole: Path) -> None:
    larger = replace(SMALL, recordings=40).seeds()
    for split, seeds in SMALL.seeds().items():
        assert set(seeds) <= set(larger[split])
    others = replace(SMALL, seed=1, recordings=40).seeds()
    assert not {seed for seeds in larger.values() for seed in seeds} & {seed for seeds in others.values() for seed in seeds}


def test_other_settings_and_foreign_folders_are_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"seconds: there 0.3, here 0.4"):
        write_dataset(whole, replace(SMALL, seconds=0.4))
    with pytest.raises(InputError, match=r"threshold_on: there 0.2, here 0.3"):
        write_dataset(whole, replace(SMALL, sensor=replace(SMALL.sensor, threshold_on=0.3)))
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(InputError, match="holds no data set"):
        write_dataset(tmp_path, SMALL)
    (tmp_path / "dataset.json").write_text("[]")
    with pytest.raises(InputError, match=r"dataset.json"):
        write_dataset(tmp_path, SMALL)
    with pytest.raises(InputError, match="recordings"):
        DatasetConfig(recordings=0)


def test_another_generator_or_no_description_is_refused(whole: Path, tmp_path: Path) -> None:
    about = json.loads((whole / "val/000800000.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(about | {"generator": 0}))
    with pytest.raises(InputError, match="generator 0"):
        read_config(tmp_path / "a.h5")
    (tmp_path / "b.json").write_text("{}")
    for name in ("b.h5", "c.h5"):
        with pytest.raises(InputError, match="no description"):
            read_config(tmp_path / name)
        with pytest.raises(InputError, match="no labels"):
            read_truth(tmp_path / name)


def test_the_command_says_what_it_wrote_and_what_is_wrong(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path / "set", recordings=2, seconds=0.1, size="40x32", processes=1)
    assert "2 recordings of 0.1 s, 40 x 32" in capsys.readouterr().out
    for wrong in ({"size": "40"}, {"size": "0x32"}, {"seconds": -1.0}, {"processes": -1}, {"recordings": 0}, {"size": "4x4"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            simulate(tmp_path / "other", **wrong)
    with pytest.raises(InputError, match="is a file"):
        simulate(whole / "train/000000000.h5")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_nothing_half_written(how: signal.Signals, tmp_path: Path) -> None:
    """Two worker processes at work when the first is killed: they end, too, and a second run completes the data set."""
    config = replace(SMALL, seconds=2.0, width=96, height=64, recordings=4)
    code = (
        "from pathlib import Path; from dataclasses import replace; from tests.simulate.test_dataset import SMALL; "
        "from saccade.simulate.dataset import write_dataset\n"
        "if __name__ == '__main__': write_dataset(Path('set'), replace(SMALL, seconds=2.0, width=96, height=64, recordings=4), 2)"
    )
    (tmp_path / "run.py").write_text(code)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "run.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": root}, stderr=subprocess.DEVNULL)
    while not list((tmp_path / "set").glob("train/.*.part*")):
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(how)
    process.wait(60)
    complete = list((tmp_path / "set").rglob("*.h5"))
    time.sleep(1.0)
    if how == signal.SIGINT:
        assert not list((tmp_path / "set").rglob("*.part*"))
    grown = [path for path in (tmp_path / "set").rglob("*.h5") if path not in complete]
    assert not [path for path in grown if not path.name.startswith(".")]
    write_dataset(tmp_path / "set", config, 1)
    write_dataset(tmp_path / "whole", config, 1)
    assert contents(tmp_path / "set") == contents(tmp_path / "whole")
