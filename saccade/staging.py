"""A RUN'S FOLDER ON S3 <-> A FOLDER HERE: programs that append to files work here, and what changed is uploaded every half minute."""

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from saccade.s3 import S3Path, cache_folder, upload
from saccade.types import InputError

log = logging.getLogger("saccade")

PUSH_S = 30.0
NOTES = ".s3.json"  # in the local folder: the ETag of each object when it was last the same here and there


@contextmanager
def staged(path: Path, *, writes: bool = True) -> Iterator[Path]:
    """PATH itself, or for s3:// a local folder with what is there; changes are uploaded until the block ends, if this process WRITES.

    A file that changed here after its last upload (this machine was stopped hard) stays; one that changed there is fetched again.
    """
    if not isinstance(path, S3Path):
        yield path
        return
    folder = cache_folder() / "s3" / "runs" / hashlib.sha256(str(path).encode()).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    _pull(path, folder)
    if not writes:
        yield folder
        return
    done = Event()
    seen = {name: _state(folder / name) for name in _notes(folder)}
    pusher = Thread(target=_push_often, args=(path, folder, seen, done), daemon=True)
    pusher.start()
    try:
        yield folder
    finally:
        done.set()
        pusher.join()
        _push(path, folder, seen)


def _pull(path: S3Path, folder: Path) -> None:
    notes = _notes(folder)
    for item in path.rglob("*"):
        if not item.is_file():
            continue
        name = item.relative_to(path).as_posix()
        mark, here = item.etag, folder / name
        if here.exists() and notes.get(name) == mark:
            continue
        here.parent.mkdir(parents=True, exist_ok=True)
        part = here.with_name(f".{here.name}.part")
        part.write_bytes(item.local().read_bytes())
        part.replace(here)
        notes[name] = mark
    _write_notes(folder, notes)


def _push_often(path: S3Path, folder: Path, seen: dict[str, tuple[int, int]], done: Event) -> None:
    while not done.wait(PUSH_S):
        try:
            _push(path, folder, seen)
        except InputError as error:
            log.warning("%s; the training goes on", error)


def _push(path: S3Path, folder: Path, seen: dict[str, tuple[int, int]]) -> None:
    """Checkpoints first: logs may know later steps than these, never earlier ones."""
    notes = _notes(folder)
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
    for file in sorted(files, key=lambda file: (file.suffix not in (".pt", ".safetensors"), file)):
        name = file.relative_to(folder).as_posix()
        state = _state(file)
        if seen.get(name) != state:
            target = path / name
            upload(file, target, keep=True)
            seen[name], notes[name] = state, target.etag
    _write_notes(folder, notes)


def _state(file: Path) -> tuple[int, int]:
    if not file.exists():
        return -1, -1
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _notes(folder: Path) -> dict[str, str]:
    path = folder / NOTES
    return json.loads(path.read_text()) if path.exists() else {}


def _write_notes(folder: Path, notes: dict[str, str]) -> None:
    part = folder / f"{NOTES}.part"
    part.write_text(json.dumps(notes))
    part.replace(folder / NOTES)
