"""Files on S3, on a real server on loopback: read whole, written whole, kept up to a limit, also when the server fails now and then."""

import json
import os
import pickle
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import tyro

import saccade
from saccade import cli, s3
from saccade.commands.options import REGISTRY
from saccade.datasets.open import open_dataset
from saccade.evaluation.run.store import digest_of
from saccade.files import check_readable, replacing
from saccade.s3 import S3Path, cache_folder, located
from saccade.samples import STREET
from saccade.types import InputError
from saccade.weights.load import load_detector
from tests.make.s3 import Unreliable, s3_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Unreliable]:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    with s3_server(monkeypatch) as found:
        yield found


def put(name: str, content: bytes) -> S3Path:
    path = located(f"s3://bucket/{name}")
    assert isinstance(path, S3Path)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def test_names_are_names_of_paths() -> None:
    path = located("s3://bucket/gen1/train/drive_td.dat")
    assert str(path) == "s3://bucket/gen1/train/drive_td.dat"
    assert located(Path("s3://bucket/gen1/train/drive_td.dat")) == path, "pathlib makes s3:/ of s3://"
    assert str(path.parent / "a.npz") == "s3://bucket/gen1/train/a.npz"
    assert str(path.with_suffix(".h5")) == "s3://bucket/gen1/train/drive_td.h5"
    assert path.relative_to(path.parents[1]).as_posix() == "train/drive_td.dat"
    assert pickle.loads(pickle.dumps(path)) == path
    assert isinstance(pickle.loads(pickle.dumps(path)).parent, S3Path)
    assert not isinstance(located("drive.raw"), S3Path)
    assert not isinstance(located("s3/drive.raw"), S3Path)


def test_written_whole_or_not_at_all_and_found_again(server: Unreliable, tmp_path: Path) -> None:
    path = put("a/b/one.bin", b"one")
    put("a/two.txt", b"two")
    assert path.exists()
    assert path.is_file()
    assert path.parent.is_dir()
    assert path.stat().st_size == 3
    assert path.read_bytes() == b"one"
    root = located("s3://bucket/a")
    assert sorted(map(str, root.iterdir())) == ["s3://bucket/a/b", "s3://bucket/a/two.txt"]
    assert [item.name for item in root.rglob("*.bin")] == ["one.bin"]
    assert [item.name for item in root.glob("*/one*")] == ["one.bin"]
    assert list(located("s3://bucket/none").rglob("*")) == []
    with pytest.raises(ZeroDivisionError), replacing(root / "half.bin") as temporary:
        temporary.write_bytes(b"hal" * (1 // 0))
    assert not (root / "half.bin").exists()
    assert not [item for item in cache_folder().rglob("*part*") if item.is_file()]
    with pytest.raises(InputError, match=r"no such file; did you mean two\.txt"):
        check_readable(root / "twos.txt")
    with pytest.raises(InputError, match="whole files"):
        path.open("wb")
    path.unlink()
    assert not path.exists()


def test_fetched_once_by_many_and_again_when_it_changes(server: Unreliable) -> None:
    path = put("one.bin", os.urandom(100_000))
    for copy in cache_folder().glob("s3/copies/*/*"):
        copy.unlink()
    server.asked.clear()
    with ThreadPoolExecutor(8) as threads:
        contents = set(threads.map(lambda _: path.read_bytes(), range(8)))
    assert len(contents) == 1
    assert server.asked.count("GET /bucket/one.bin") == 1
    s3._server().pipe_file("bucket/one.bin", b"new")  # by another program
    s3._known.clear()
    assert path.read_bytes() == b"new"


def test_copies_keep_to_their_limit(server: Unreliable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE_GB", "0.0000035")
    monkeypatch.setattr(s3, "RECENT_S", 0.0)
    paths = [put(f"{number}.bin", bytes(1000)) for number in range(6)]
    for copy in cache_folder().glob("s3/copies/*/*.bin"):
        copy.unlink()
    for path in paths:
        assert path.read_bytes() == bytes(1000)
        time.sleep(0.01)
        assert sum(copy.stat().st_size for copy in cache_folder().glob("s3/copies/*/*.bin")) <= 3500
    assert {copy.name for copy in cache_folder().glob("s3/copies/*/*.bin")} == {"3.bin", "4.bin", "5.bin"}
    large = put("large.bin", bytes(4000))
    next(cache_folder().glob("s3/copies/*/large.bin")).unlink()
    with pytest.raises(InputError, match="set SACCADE_CACHE_GB to more"):
        large.local()


def test_a_server_that_fails_now_and_then_changes_nothing(server: Unreliable, monkeypatch: pytest.MonkeyPatch) -> None:
    server.every = 20
    contents = {f"{number}.bin": os.urandom(10_000 + number) for number in range(40)}
    for name, content in contents.items():
        put(name, content)
    for copy in cache_folder().glob("s3/copies/*/*.bin"):
        copy.unlink()
    s3._known.clear()
    assert {name: located(f"s3://bucket/{name}").read_bytes() for name in contents} == contents
    assert len(server.asked) >= 160
    server.down = True
    monkeypatch.setattr(s3, "TRIES", 2)
    s3._known.clear()
    with pytest.raises(InputError, match=r"s3://bucket/0\.bin: the server failed"):
        located("s3://bucket/0.bin").read_bytes()


def command(*words: object) -> None:
    """As typed."""
    arguments = [str(word) for word in words]
    function = getattr(cli, arguments[0])
    tyro.cli(function, args=arguments[1:], config=(tyro.conf.FlagCreatePairsOff,), registry=REGISTRY)


@pytest.mark.thorough
def test_every_command_reads_and_writes_there_as_on_a_disk(server: Unreliable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same commands with folders and with s3:// in their place; one request in twenty fails."""
    server.every = 20
    monkeypatch.chdir(tmp_path)
    places: list[Path] = [tmp_path / "here", located("s3://bucket/there")]
    (tmp_path / "here").mkdir()
    for place in places:
        command("simulate", place / "streets", "--recordings", 10, "--seconds", 0.5, "--size", "64x64", "--processes", 1)
        command("convert", STREET, place / "street.dat")
        command("info", place / "street.dat")
        command("prepare", place / "streets", place / "frames", "--split", "test", "--processes", 1)
        command("check", place / "streets", "--split", "test")
        with pytest.raises(KeyboardInterrupt):
            train(place, stopped=True)
        shutil.rmtree(cache_folder() / "s3", ignore_errors=True)
        train(place)
        weights = place / "run" / "final.safetensors"
        command("evaluate", weights, place / "streets", "--rates", 20, 40, "--split", "test", "--processes", 1, "--out", place / "scores")
        command("detect", weights, place / "street.dat", "--to", 0.5, "--out", place / "boxes.jsonl")
    here, there = places
    for name in ("street.dat", "boxes.jsonl", "streets/dataset.json", "streets/test/000900000.h5"):
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    assert digest_of(load_detector(there / "run" / "final.safetensors")) == digest_of(load_detector(here / "run" / "final.safetensors"))
    scores = [json.loads((place / "scores" / "evaluation.json").read_text())["results"] for place in places]
    assert [one["scores"] for one in scores[0]] == [one["scores"] for one in scores[1]]
    frames = [open_dataset(place / "frames", "test").recordings[0] for place in places]
    ends_us = frames[0].ends_us(frames[0].fixed_sampling)
    np.testing.assert_array_equal(*(one.frames(ends_us, one.fixed_sampling) for one in frames))
    assert not (tmp_path / "s3:").exists(), "something was written beside S3"
    assert {path.name for path in (there / "run").iterdir()} >= {"final.safetensors", "last.pt", "metrics.jsonl"}
    assert len(server.asked) > 200


def train(place: Path, *, stopped: bool = False) -> None:
    """Eight steps. STOPPED: by Ctrl-C after the first, and this machine's copy is lost: another one goes on."""
    changes = {"batch": 2, "length": 4, "workers": 0, "threads": 1, "device": "cpu", "model": "s5-vit-nano", "steps": 8}
    if stopped:
        Thread(target=interrupt, args=(cache_folder() / "s3" / "runs" if isinstance(place, S3Path) else place,)).start()
    saccade.train(place / "streets", place / "run", "synthetic", **changes)


def interrupt(folder: Path) -> None:
    while not any(path.stat().st_size for path in folder.rglob("metrics.jsonl")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
