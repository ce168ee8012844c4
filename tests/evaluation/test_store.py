"""Answers that are kept: what was interrupted goes on, stale ones are never used, and long recordings' wait on disk, not in memory."""

import bz2
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.recording import Dataset, Sampling
from saccade.evaluation.evaluate import answers_at, evaluate
from saccade.evaluation.result import Answer, Evaluation
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.store import MANIFEST, read_answers, read_kept
from saccade.types import InputError
from tests.evaluation.squares import squares, untrained
from tests.make.attacks import BZIP2, zipped

PLAIN = Condition()
FAST = Condition(rate_hz=60, stepping="interleaved")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return squares(tmp_path_factory.mktemp("squares"))


def numbers(evaluation: Evaluation) -> list[object]:
    return [repr((r.scores, r.by_still_s, r.curves, r.age_ms, r.cost.frames, r.cost.recorded_s)) for r in evaluation.results]


def said(out: Path, condition: Condition) -> list[Answer]:
    return list(answers_at(out, condition))


def test_what_was_interrupted_goes_on(data: Dataset, tmp_path: Path) -> None:
    detector, conditions = untrained(), [PLAIN, FAST]
    whole = evaluate(detector, data, conditions, out=tmp_path / "whole")
    done = [0.0]

    def interrupt(name: str, seconds: float) -> None:
        done[0] += seconds
        if done[0] > 1.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(detector, data, conditions, out=tmp_path / "parts", progress=interrupt)
    (kept,) = (tmp_path / "parts").rglob("*.npz")
    with pytest.raises(InputError, match="no complete evaluation"):
        said(tmp_path / "parts", PLAIN)
    written = kept.stat().st_mtime_ns
    done = [-1e9]
    assert numbers(evaluate(detector, data, conditions, out=tmp_path / "parts", progress=interrupt)) == numbers(whole)
    assert done[0] + 1e9 == pytest.approx(2 * whole.results[0].cost.recorded_s), "what was kept counts as done"
    assert kept.stat().st_mtime_ns == written
    assert not [path for path in tmp_path.rglob("*") if ".part" in path.name]


def test_answers_of_other_weights_or_settings_are_never_used(data: Dataset, tmp_path: Path) -> None:
    fresh = {seed: numbers(evaluate(untrained(seed), data, [PLAIN])) for seed in (0, 1)}
    assert fresh[0] != fresh[1]
    for seed in (0, 1, 0):
        assert numbers(evaluate(untrained(seed), data, [PLAIN], out=tmp_path)) == fresh[seed]
    evaluate(untrained(0), data, [PLAIN], out=tmp_path, label_rate_hz=10)
    assert len(said(tmp_path, PLAIN)) == 30
    evaluate(untrained(0), data, [PLAIN], out=tmp_path, recordings=1)
    assert {answer.recording for answer in said(tmp_path, PLAIN)} == {"part/square0"}
    broken = tmp_path / PLAIN.name / "part/square0.npz"
    broken.write_bytes(broken.read_bytes()[:1000])
    with pytest.raises(InputError, match="was changed"):
        said(tmp_path, PLAIN)
    assert numbers(evaluate(untrained(0), data, [PLAIN], out=tmp_path)) == fresh[0]


def test_answers_about_other_events_are_never_used(tmp_path: Path) -> None:
    """The same recording by name, windows and labels, with other events in its file."""
    data, other = squares(tmp_path / "data", 1), squares(tmp_path / "other", 1, events_per_s=3000)
    event_file, out = tmp_path / "data/square0.h5", tmp_path / "out"
    for before, after in zip(data.recordings, other.recordings, strict=True):
        assert before.name == after.name
        np.testing.assert_array_equal(before.ends_us(Sampling()), after.ends_us(Sampling()))
        np.testing.assert_array_equal(before.labels.boxes, after.labels.boxes)

    def boxes(dataset: Dataset, out: Path) -> list[list[list[float]]]:
        evaluate(untrained(), dataset, [PLAIN], out=out)
        return [answer.detections.boxes.tolist() for answer in said(out, PLAIN)]

    first, fresh = boxes(data, out), boxes(other, tmp_path / "fresh")
    assert first != fresh
    (kept,) = out.rglob("*.npz")
    written = kept.stat().st_mtime_ns
    os.utime(event_file, ns=(1, 1))
    assert boxes(squares(tmp_path / "data", 1), out) == first
    assert kept.stat().st_mtime_ns == written, "a new time of change alone costs nothing"
    shutil.copyfile(tmp_path / "other/square0.h5", event_file)
    os.utime(event_file, ns=(1, 1))
    assert boxes(squares(tmp_path / "data", 1), out) == fresh


def start(tmp_path: Path, out: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.evaluation.squares", str(tmp_path / "data"), str(tmp_path / out), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_program_that_ends_loses_only_what_is_under_way(tmp_path: Path, how: signal.Signals) -> None:
    dataset = squares(tmp_path / "data", 5, seconds=6.0, rate_hz=20.0, events_per_s=50)
    process = start(tmp_path, "parts", 5, 6, 20, 2, 20)
    assert process.stdout is not None
    for line in process.stdout:
        if float(line) > 15:
            break
    process.send_signal(how)
    process.stdout.read()
    assert process.wait(timeout=60) != 0
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").rglob("[!.]*.npz")}
    assert 1 <= len(kept) < 5
    assert not (tmp_path / "parts" / PLAIN.name / MANIFEST).exists()
    continued, whole = (evaluate(untrained(), dataset, [PLAIN], out=tmp_path / name) for name in ("parts", "whole"))
    assert numbers(continued) == numbers(whole)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.slow
def test_a_quarter_of_an_hour_takes_no_more_memory_than_a_minute(tmp_path: Path) -> None:
    """After the last frame: scores then need all answers at once, and a reader may hold an index for a moment."""
    peaks = []
    for name, seconds in (("minute", 60), ("long", 900)):
        squares(tmp_path / name / "data", 1, seconds=seconds, rate_hz=5, events_per_s=50)  # here, so that making it isn't counted
        printed = start(tmp_path / name, "out", 1, seconds, 5, 1, 5).communicate(timeout=600)[0].splitlines()
        assert float(printed[-3]) == pytest.approx(seconds, rel=0.01)
        peaks.append(int(printed[-1]))
    print(f"{peaks[0]} MB resident after a minute, {peaks[1]} MB after a quarter of an hour")
    assert peaks[1] < peaks[0] + 30  # 21 when measured: freed memory is kept, and fragments


def test_an_answer_that_was_made_to_fill_the_memory_is_never_unpacked(tmp_path: Path) -> None:
    size = 64 << 20
    path = zipped(tmp_path / "a.npz", [("kept.npy", BZIP2, bz2.compress(bytes(size)), size)])
    tracemalloc.start()
    try:
        assert read_kept(path) is None
        assert tracemalloc.get_traced_memory()[1] < size / 8
    finally:
        tracemalloc.stop()


def test_a_damaged_answer_is_computed_again(data: Dataset, tmp_path: Path) -> None:
    detector = untrained()
    whole = evaluate(detector, data, [PLAIN], out=tmp_path / "out")
    path = next((tmp_path / "out").rglob("*.npz"))
    content = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 60).tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        kept = read_kept(path)
        if kept is not None:  # a byte that says nothing, such as that of a time in the archive
            path.write_bytes(content)
            sound = read_answers(path, kept)
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
            assert repr(read_answers(path, kept)) == repr(sound)
    path.write_bytes(content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :])
    assert read_kept(path) is None
    assert numbers(evaluate(detector, data, [PLAIN], out=tmp_path / "out")) == numbers(whole)
