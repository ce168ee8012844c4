"""`saccade detect` as a user meets it: outputs that agree, any sensor, and runs that are cut off in the middle."""

import json
import logging
import lzma
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade import cli
from saccade.config import s5_vit_nano
from saccade.datasets.labels import RawLabels, read_boxes, read_coco, read_csv
from saccade.events.open import open_events
from saccade.events.write import write_events
from saccade.model.detector import Detector
from saccade.outputs.tables import read_json_lines
from saccade.samples import STREET, shipped_weights
from saccade.sources.send import send_events
from saccade.stream.adaptive import Adaptive
from saccade.stream.stream import Stream
from saccade.types import Detections, Events, InputError
from saccade.weights.load import load_detector, save_detector
from tests.make.events import random_events

ROOT = Path(__file__).parents[1]
CLASSES = s5_vit_nano().classes
FORMATS = ["jsonl", "csv", "json", "npy", "mp4"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained: its boxes are anywhere, but they are boxes."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "untrained.safetensors"
    save_detector(Detector(s5_vit_nano()), path)
    return path


@pytest.fixture(scope="module")
def score(weights: Path) -> float:
    """That about four boxes a frame reach."""
    found = streamed(weights, rate_hz=20, score=0.0)
    return float(np.median([np.sort(one.scores)[-4] for one in found]))


def streamed(weights: Path, **options) -> list[Detections]:
    with open_events(STREET) as reader:
        return list(Stream(load_detector(weights), **options).run(reader.stream(200_000, 600_000)))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "saccade.cli", "detect", *map(str, arguments)]


def read(path: Path) -> RawLabels:
    if path.suffix == ".csv":
        return read_csv(path, CLASSES, STREET)
    return read_coco(path, STREET.name, CLASSES, STREET) if path.suffix == ".json" else read_boxes(path)


def pictures(path: Path) -> int:
    av = pytest.importorskip("av", reason="PyAV isn't installed")
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def assert_agree(folder: Path, stem: str, killed: bool = False) -> list[Detections]:
    """All files say what the JSON lines say; those of a run that was KILLED may lack the frame that was being written, COCO's up to 64."""
    found = list(read_json_lines(folder / f"{stem}.jsonl"))
    ends = np.cumsum([len(one) for one in found])
    for suffix, lost in (("csv", 1), ("json", 64), ("npy", 1)):
        labels = read(folder / f"{stem}.{suffix}")
        assert len(labels.t) in ends  # whole frames
        expected = found[: np.flatnonzero(ends == len(labels.t))[-1] + 1]
        assert len(found) - len(expected) <= (lost if killed else 0)
        assert labels.t.tolist() == [one.time_us for one in expected for _ in range(len(one))]
        np.testing.assert_allclose(labels.boxes, np.concatenate([one.boxes for one in expected]), atol=1e-3)
        assert labels.tracks.tolist() == [track for one in expected for track in one.tracks.tolist()]  # type: ignore[union-attr]
    return found


def test_all_outputs_say_what_the_stream_says(weights: Path, score: float, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    paths = tuple(tmp_path / f"a.{suffix}" for suffix in FORMATS)
    cli.detect(str(weights), STREET, rate_hz=50, out=paths, start_s=0.2, end_s=0.6, score=score, slow=2)
    assert all(path.exists() for path in paths)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    found = assert_agree(tmp_path, "a")
    expected = streamed(weights, rate_hz=50, score=min(score, 0.1), tracker=True)
    assert [one.time_us for one in found] == [one.time_us for one in expected]
    for one, other in zip(found, expected, strict=True):
        kept = other.shown(score)
        np.testing.assert_array_equal(one.boxes, kept.boxes)
        np.testing.assert_array_equal(one.tracks, kept.tracks)
    assert pictures(tmp_path / "a.mp4") == len(found)
    assert f"{len(found)} frames at 50 Hz" in capsys.readouterr().out


def test_counts_are_the_streams(weights: Path, score: float, tmp_path: Path) -> None:
    options = {"rate_hz": 50, "window": "disjoint"}  # held, unless asked for otherwise
    cli.detect(str(weights), STREET, out=(tmp_path / "a.jsonl",), start_s=0.2, end_s=0.6, score=score, track=False, **options)
    expected = streamed(weights, score=score, **options)
    found = list(read_json_lines(tmp_path / "a.jsonl"))
    assert sum(map(len, found)) > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)
    plain = streamed(weights, score=score, **{**options, "counts": "plain"})
    assert any(len(one) != len(other) or (one.boxes != other.boxes).any() for one, other in zip(plain, expected, strict=True))


def test_classes_and_tracks_can_be_left_out(weights: Path, score: float, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    cli.detect(str(weights), STREET, out=(path,), end_s=0.5, score=score, classes=("pedestrian",), track=False)
    found = list(read_json_lines(path))
    assert {index for one in found for index in one.classes.tolist()} == {CLASSES.index("pedestrian")}
    assert all(one.tracks is None for one in found)
    number = sum(map(len, found))
    assert f" {number:,} boxes (pedestrian {number:,}), " in capsys.readouterr().out


def test_it_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    cli.detect("nano", STREET, out=(tmp_path / "a.jsonl",), end_s=1.0)
    tracks = {
        track for one in read_json_lines(tmp_path / "a.jsonl") for track in (one.tracks if one.tracks is not None else ()) if track >= 0
    }
    said = re.search(r" boxes, (\d+) tracks \((.*)\), .* x real time", capsys.readouterr().out)
    assert said
    assert int(said[1]) == len(tracks) > 0
    assert sum(int(part.rsplit(" ", 1)[1]) for part in said[2].split(", ")) == len(tracks)


def test_a_pipe_gets_json_lines(weights: Path, score: float) -> None:
    result = subprocess.run(
        command(weights, STREET, "--out", "-", "--to", 0.3, "--score", score), capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert "6 frames" in result.stderr
    assert [json.loads(line)["time_us"] for line in result.stdout.splitlines()] == [50_000 * (i + 1) for i in range(6)]


def test_live_sources_are_detected_until_they_end(weights: Path, score: float, tmp_path: Path) -> None:
    """Windows may be merged on a busy machine; what is there is on the grid and belongs to the run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        name = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with open_events(STREET) as reader:
        part = reader.between(0, 500_000)
    sending = threading.Thread(target=send_events, args=([part], name), kwargs={"wait_s": 300})
    sending.start()
    cli.detect(str(weights), name, out=(tmp_path / "a.jsonl", tmp_path / "a.mp4"), score=score)
    sending.join()
    times_us = [one.time_us for one in read_json_lines(tmp_path / "a.jsonl")]
    assert times_us
    assert set(times_us) <= {50_000 * (i + 1) for i in range(10)}
    assert pictures(tmp_path / "a.mp4") == len(times_us)
    with pytest.raises(InputError, match="are for recordings"):
        cli.detect(str(weights), "sim:7", end_s=1, out=(tmp_path / "b.jsonl",))


def test_a_recording_at_a_speed_is_the_same_recording(weights: Path, score: float, tmp_path: Path) -> None:
    cli.detect(str(weights), f"{STREET}@100", out=(tmp_path / "a.jsonl",), score=score, start_s=0.2, end_s=0.6)
    times_us = [one.time_us for one in read_json_lines(tmp_path / "a.jsonl")]
    assert times_us
    assert 200_000 < times_us[0] <= times_us[-1] <= 600_000


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`saccade detect` with the arguments of a command line, in this process."""
    monkeypatch.setattr(logging.getLogger("saccade"), "handlers", [])  # the command line adds its own

    def run(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["saccade", "detect", *map(str, arguments)])
        cli.main()

    return run


def test_an_adaptive_rate_is_the_streams(typed, weights: Path, score: float, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "a.jsonl"
    typed(weights, STREET, "--from", 0.2, "--to", 0.6, "--min-rate", 5, "--max-rate", 100, "--score", score, "--out", out)
    times_us = [one.time_us for one in read_json_lines(out)]
    assert times_us == [one.time_us for one in streamed(weights, adaptive=Adaptive(min_rate_hz=5, max_rate_hz=100))]
    assert 2 < len(times_us) < 40, "less often than at most, more often than at least"
    assert f"{len(times_us)} frames at up to 100 Hz" in capsys.readouterr().out
    assert "--max-rate" in refused(typed, capsys, weights, STREET, "--max-rate", 10, "--rate", 50)
    assert "another fit" in refused(typed, capsys, weights, STREET, "--min-rate", 5, "--fit", "tile", "--out", tmp_path / "b.jsonl")


def refused(typed, capsys: pytest.CaptureFixture, *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        typed(*arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_threads_are_those_asked_for(typed, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before = torch.get_num_threads()
    try:
        for asked, used in ((before + 1, before + 1), (0, before + 1)):
            typed(weights, STREET, "--to", 0.1, "--threads", asked, "--out", tmp_path / f"{asked}.jsonl")
            assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(before)
    assert "--threads -1" in refused(typed, capsys, weights, STREET, "--threads", -1)


def test_a_jump_of_time_ends_the_run_or_begins_anew(typed, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first = random_events(10_000, width=160, height=128, span_us=200_000)
    later = Events(first.t + 3_600_000_000, first.x, first.y, first.p, first.width, first.height)
    recording, out = tmp_path / "jump.h5", tmp_path / "a.jsonl"
    write_events(Events.join([first, later]), recording)
    assert "time jumps from" in refused(typed, capsys, weights, recording, "--out", out)
    typed(weights, recording, "--faults", "skip", "--out", out)
    times_us = [one.time_us for one in read_json_lines(out)]
    assert times_us == [after_us + end_us for after_us in (0, 3_600_000_000) for end_us in (50_000, 100_000, 150_000, 200_000)]


UNIX_US = 1_700_000_000_000_000


def unix_clock(folder: Path, gap_us: int = 0) -> Path:
    """A second of events since a moment of 2023, and another second of them GAP_US later."""
    first = random_events(20_000, width=160, height=128, span_us=1_000_000, start_us=UNIX_US)
    later = Events(first.t + 1_000_000 + gap_us, first.x, first.y, first.p, first.width, first.height)
    write_events(Events.join([first, later]), folder / "unix.h5")
    return folder / "unix.h5"


def test_times_count_from_the_first_event_whatever_the_clock(typed, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    recording, paths = unix_clock(tmp_path), [tmp_path / name for name in ("relative.jsonl", "absolute.jsonl")]
    with open_events(recording) as reader:
        zero_s = reader.start_us / 1e6
    typed(weights, recording, "--from", 0.5, "--to", 1.5, "--out", paths[0])
    times_us = [one.time_us - UNIX_US for one in read_json_lines(paths[0])]
    assert len(times_us) in (20, 21)
    assert 500_000 <= times_us[0] <= 600_000
    absolute = ["--from", f"{zero_s + 0.5:.6f}", "--to", f"{zero_s + 1.5:.6f}", "--clock", "absolute"]
    typed(weights, recording, *absolute, "--out", paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    cli.view(recording, tmp_path / "a.png", start_s=0.5, end_s=1.5)
    assert "a.png: 8 frames" in capsys.readouterr().out
    for wrong in (["--from", 0.5, "--to", 1.5, "--clock", "absolute"], absolute[:4]):
        assert "nothing between --from and --to" in refused(typed, capsys, weights, recording, *wrong, "--out", tmp_path / "none.jsonl")


def test_a_part_without_events_is_an_error(typed, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    recording, one = unix_clock(tmp_path, gap_us=2_000_000), random_events(100, width=160, height=128)
    out = tmp_path / "a.jsonl"
    told = refused(typed, capsys, weights, recording, "--from", 1.5, "--to", 2.5, "--out", out)
    assert "has no events from 1700000001.5" in told
    with pytest.raises(InputError, match="no frame to write"):
        cli.view(recording, tmp_path / "a.png", start_s=1.5, end_s=2.5)
    for name, events, fault in (
        ("none.npz", random_events(0, width=160, height=128), "holds no events"),
        ("back.npz", Events(*(column[::-1] for column in (one.t, one.x, one.y, one.p)), one.width, one.height), "time runs backwards"),
    ):
        write_events(events, tmp_path / name)
        assert fault in refused(typed, capsys, weights, tmp_path / name, "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.npz", "none.npz", "unix.h5"]


def started(weights: Path, score: float, folder: Path, frames: int, **options) -> subprocess.Popen:
    """A run at 200 Hz that has written so many frames."""
    out = [folder / f"a.{suffix}" for suffix in FORMATS]
    arguments = command(weights, STREET, "--rate", 200, "--score", score, "--slow", 10, "--out", *out)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, **options)
    part = folder / "a.part.jsonl"
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if part.exists() and part.read_bytes().count(b"\n") >= frames:
            break
        time.sleep(0.05)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "terminated", "killed"])
def test_a_run_that_is_ended_leaves_readable_parts(number: int, weights: Path, score: float, tmp_path: Path) -> None:
    process = started(weights, score, tmp_path, frames=100)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert not any((tmp_path / f"a.{suffix}").exists() for suffix in FORMATS)
    found = assert_agree(tmp_path, "a.part", killed=number == signal.SIGKILL)
    assert len(found) >= 100
    assert 0 <= len(found) - pictures(tmp_path / "a.part.mp4") <= 20  # half a second of video, and what waits for its thread
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert f"what was detected until {found[-1].time_us / 1e6:.3f} s is in" in told
        assert all(f"a.part.{suffix}" in told for suffix in FORMATS)
        assert "Traceback" not in told


def _limited(folder: Path) -> dict[str, Callable[[], None]]:
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))}


def _small_disk(folder: Path) -> dict[str, Callable[[], None]]:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small disk can't be mounted here: needs root")
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("disk", [_limited, _small_disk], ids=["largest file", "full disk"])
def test_a_full_disk_ends_the_run_with_one_line(disk, weights: Path, score: float, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    options = disk(folder)
    try:
        process = started(weights, score, folder, frames=10**9, **options)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 2, told
        assert len([line for line in told.splitlines() if line.startswith("saccade: ")]) == 1
        assert "can't go on writing at" in told
        assert "Traceback" not in told
        found = list(read_json_lines(folder / "a.part.jsonl"))
        assert len(found) >= 50
        for suffix in ("csv", "json", "npy"):
            labels = read(folder / f"a.part.{suffix}")
            boxes = np.concatenate([one.boxes for one in found])
            rows = min(len(labels.t), len(boxes))  # one may be a frame ahead of the other
            assert abs(len(labels.t) - len(boxes)) < 0.1 * len(boxes) + 64 * 8
            np.testing.assert_allclose(labels.boxes[:rows], boxes[:rows], atol=1e-3)
        assert pictures(folder / "a.part.mp4") >= 30
    finally:
        if disk is _small_disk:
            subprocess.run(["umount", str(folder)], check=False)


def real(name: str, shared: Path, tmp_path: Path) -> Path:
    path = shared / "data" / name
    if path.suffix != ".xz":
        return path
    with lzma.open(path) as packed, (tmp_path / path.stem).open("wb") as file:
        shutil.copyfileobj(packed, file)
    return tmp_path / path.stem


@pytest.mark.parametrize(
    ("name", "size", "fit"),
    [
        ("gen1/clip_td.dat", (304, 240), "auto"),
        ("davis346_cars/cars.aedat4", (346, 260), "auto"),
        ("prophesee/imx636_10.8s.dat.xz", (1280, 720), "auto"),
        pytest.param("prophesee/imx636_10.8s.dat.xz", (1280, 720), "tile", marks=pytest.mark.slow),
    ],
)
def test_real_recordings_of_any_size(name: str, size: tuple[int, int], fit, weights: Path, shared: Path, tmp_path: Path) -> None:
    """Boxes lie on the sensor, and reach all over it: they were mapped back."""
    recording = real(name, shared, tmp_path)
    cli.detect(str(weights), recording, out=(tmp_path / "a.csv", tmp_path / "a.jsonl"), end_s=0.3, score=0.0, fit=fit)
    found = list(read_json_lines(tmp_path / "a.jsonl"))
    assert 4 <= len(found) <= 7
    boxes = np.concatenate([one.boxes for one in found])
    assert boxes.min() >= 0
    assert (boxes[:, 2:].max(axis=0) <= size).all()
    assert (boxes[:, 2:].max(axis=0) > 0.9 * np.array(size)).all()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weights": "nano-of-nobody"}, "shipped: "),
        ({"weights": "nothing.safetensors"}, "no such file"),
        ({"classes": ("tram",)}, "it knows car, pedestrian"),
        ({"out": (Path("a.avi"),)}, "unknown suffix '.avi'"),
        ({"out": (Path("a.csv"), Path("a.csv"))}, "named twice"),
        ({"out": (Path("a.mp4"), Path("a.csv"), Path("nowhere") / "b.csv")}, "can't write there"),
        ({"rate_hz": 0.0}, "--rate 0.0"),
        ({"score": 2.0}, "expected 0 to 1"),
        ({"start_s": 100.0}, "nothing between --from and --to; they count from the first event, .* add --clock absolute"),
        ({"end_s": 0.0}, "nothing between --from and --to"),
        ({"start_s": 100.0, "clock": "absolute"}, "clock goes from 0.000038 to 2.500000 s"),
        ({"start_s": float("nan")}, "expected seconds"),
        ({"size": "large"}, "160x128"),
    ],
)
def test_wrong_input_is_named(change: dict, told: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"weights": str(weights), "recording": STREET, "out": (Path("a.csv"),)} | change
    with pytest.raises(InputError, match=told):
        cli.detect(**options)
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_replaced_unasked(weights: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        cli.detect(str(weights), STREET, out=(path,), end_s=0.2)
    assert path.read_text() == "mine"
    cli.detect(str(weights), STREET, out=(path,), end_s=0.2, overwrite=True)
    assert len(list(read_json_lines(path))) > 2


def test_shipped_weights_go_by_name() -> None:
    for name, path in shipped_weights().items():
        assert path.is_file()
        assert path.stem == name


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that are started run this copy of saccade."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def test_the_shipped_weights_find_real_cars(shared: Path, tmp_path: Path) -> None:
    """Trained without a real event; `examples/real_events.py` counts what the README says, with the default options."""
    command = [sys.executable, "-m", "examples.real_events", "nano", shared / "data/davis346_cars", "--rates", "20", "--out", tmp_path]
    said = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    name, rate, found, _, right = said.splitlines()[-1].strip("| ").split(" | ")
    assert (name, rate, found.split()[-1]) == ("cars.aedat4", "20 Hz", "143")
    assert int(found.split()[0]) > 115  # 127 when it was shipped
    assert int(right.rstrip(" %")) > 75  # 84
    assert (tmp_path / "cars_20hz.png").stat().st_size > 10_000


def test_a_folder_without_labels_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.real_events", "nano", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 1
    assert f"{tmp_path}: no NAME_bbox*.npy" in ended.stderr


def test_noise_alone_is_hardly_ever_an_object() -> None:
    """`examples/silence.py` for 30 s of event time; the card of nano has an hour."""
    command = [sys.executable, "-m", "examples.silence", "nano", "--minutes", "0.5", "--size", "128", "96"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    boxes, filled, frames = (int(word.replace(",", "")) for word in re.findall(r"[\d,]+(?= boxes| of| frames)", said.splitlines()[0]))
    assert frames >= 500
    assert filled <= 0.02 * frames, said
    assert boxes >= filled
