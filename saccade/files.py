"""FILES: whole or not there, one writer at a time, full disks explained, paths looked at first; dataclasses <-> JSON, settings compared."""

import errno
import fcntl
import glob
import hashlib
import math
import os
import secrets
import stat
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, get_args, get_origin

from saccade.s3 import S3Path, located, outgoing, upload
from saccade.types import InputError

FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file would be larger than allowed"}
LOCK = ".lock"  # in a folder that is being written to
BLOCK_BYTES, SAMPLED_BLOCKS = 1 << 16, 256  # 16 MB of a large file: less than 0.1 s
NAN = math.nan  # one object, so that equal records compare equal
WORDS = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no numbers for them, so they are texts


class Busy(InputError):
    """Another process is writing there."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; at the end of the block it becomes `path`, after an error it vanishes.

    Its name is always the same, .NAME.part.SUFFIX, and it is locked: what a killed run left there goes, a second writer gets `Busy`.
    For s3:// it is a local file that is uploaded at the end; the object appears when it is whole, and the last of two writers wins.
    """
    path = located(path)
    if isinstance(path, S3Path):
        with explain_full_disk(path):
            temporary = outgoing(path)
            try:
                yield temporary
                publish(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        return
    if os.path.isdir(path):
        raise InputError(f"{path}: is a directory; expected a file name to write to")
    with explain_full_disk(path):
        temporary, lock = _claimed(path)
        try:
            yield temporary
            os.chmod(temporary, 0o666 & ~_umask())  # some libraries make files that nobody else may read
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            _release(lock)


def publish(part: Path, path: Path) -> None:
    """A finished file gets its name, on this disk or on S3."""
    if isinstance(path, S3Path):
        upload(part, path)
    else:
        os.replace(part, path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Make FOLDER; while the block runs, others that want to be its only writer get `Busy`. Locks of dead processes are void.

    S3 has no locks: there two writers of the same work write the same objects.
    """
    if isinstance(folder, S3Path):
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _claim(folder / LOCK)
    except FileExistsError as error:
        raise InputError(f"{folder}: is a file; expected a folder to write to, or a new name") from error
    except Busy as error:
        raise Busy(f"{folder}: another process is writing into it; wait until it is done, or give another folder") from error
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from error
    try:
        yield
    finally:
        if lock is not None:
            (folder / LOCK).unlink(missing_ok=True)
            _release(lock)


def _claimed(path: Path) -> tuple[Path, int | None]:
    temporary = path.parent / f".{path.name}.part{path.suffix}"
    try:
        lock = _claim(temporary)
        if lock is None:  # two writers may share the folder unnoticed, so each has a name of its own
            temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.part{path.suffix}"
            temporary.touch(exist_ok=False)
        return temporary, lock
    except Busy as error:
        raise Busy(f"{path}: another process is writing it; wait until it is done, or give another name") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError | ValueError) -> InputError:
    return InputError(f"{path}: can't write there ({getattr(error, 'strerror', None) or error}); choose another folder")


_locks: set[int] = set()  # descriptors


def _claim(path: Path) -> int | None:
    """Descriptor of a new file that is locked until `_release` or the end of this process; None where the file system has no locks.

    Busy if another process has locked a file of that name; one that nobody locks was left by a killed process, and is removed.
    """
    _give_forks_no_locks()
    while True:
        try:
            handle, new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            try:
                handle, new = os.open(path, os.O_RDWR | os.O_NOFOLLOW), False
            except FileNotFoundError:
                continue  # removed meanwhile
        _locks.add(handle)
        mine = False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = path.exists() and os.path.samestat(path.stat(), os.fstat(handle))
            mine = there and new
            if mine:
                return handle
            if there:
                path.unlink()
        except BlockingIOError as error:
            if not new:  # else another process looks whether this file was left, and lets go of it
                raise Busy(f"{path}: is locked") from error
        except OSError:
            if new:
                path.unlink(missing_ok=True)
            return None
        finally:
            if not mine:
                _release(handle)


def _release(lock: int | None) -> None:
    if lock in _locks:
        _locks.discard(lock)
        os.close(lock)


@cache
def _give_forks_no_locks() -> None:
    """A lock lasts as long as any process has its descriptor: workers that outlive a killed parent would keep it."""
    os.register_at_fork(after_in_child=_release_all)


def _release_all() -> None:
    for lock in tuple(_locks):
        _release(lock)


def check_readable(path: Path) -> None:
    """Raise InputError unless the path is a file that can be read."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
            return
    except FileNotFoundError as error:
        near = sorted(p.name for p in path.parent.glob(f"{glob.escape(path.stem[:3])}*"))[:5] if path.stem and path.parent.is_dir() else []
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise InputError(f"{path}: no such file{hint}") from error
    except PermissionError as error:
        raise InputError(f"{path}: no permission to read it; `chmod u+r {path}`, or ask its owner") from error
    except (OSError, ValueError) as error:  # a name that is too long, or with a zero byte
        raise InputError(f"{path}: can't be opened ({error})") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a directory; expected one recording (for a ROS 2 bag, give the .mcap file inside)")
    raise InputError(f"{path}: is not a regular file; expected a recording on disk")


def check_name(name: str, where: Path | str) -> str:
    """The name that a file gives to another, if it stays inside the folder: no absolute path and no `..`."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise InputError(f"{where}: names {name!r:.80}; expected a name inside its folder, without .. and not absolute")
    return name


@contextmanager
def explain_full_disk(where: Path | str, advice: str = "make room or choose another folder") -> Iterator[None]:
    """Turn the errors of a disk that takes no more into InputError. Libraries bury its number in a text, or in the error before theirs."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason: BaseException | None = error
        while reason is not None:
            for number, text in FULL.items():
                if getattr(reason, "errno", None) == number or any(f"{said} {number}" in str(reason) for said in ("errno =", "os error")):
                    raise InputError(f"{where}: {text}; {advice}") from error
            reason = reason.__context__
        raise


def sampled_digest(path: Path) -> str:
    """Hash of a file's size and content, of a large one its size and SAMPLED_BLOCKS blocks all over it, first and last included.

    Times of change play no role: a copy is the same. A change of a large file that keeps its size and spares all blocks goes unnoticed.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(str(size).encode())
        if size <= SAMPLED_BLOCKS * BLOCK_BYTES:
            digest.update(file.read())
            return digest.hexdigest()
        for block in range(SAMPLED_BLOCKS):
            file.seek(block * (size - BLOCK_BYTES) // (SAMPLED_BLOCKS - 1))
            digest.update(file.read(BLOCK_BYTES))
        return digest.hexdigest()


def scratch_file(folder: Path | None = None) -> IO[bytes]:
    """A file without a name: the system removes it when it is closed, even after a crash."""
    return tempfile.TemporaryFile(prefix="saccade-", dir=folder)


def read_exactly(file: IO[bytes], buffer: memoryview, position: int) -> bool:
    """Fill the buffer from this position on, without moving the file's own; False if the file ends before."""
    done = 0
    while done < len(buffer):
        got = os.preadv(file.fileno(), [buffer[done:]], position + done)
        if got <= 0:
            return False
        done += got
    return True


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, floats that JSON can't write as texts."""
    if is_dataclass(value):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_plain(kind: Any, value: Any, where: str) -> Any:
    """A value of KIND, which is what fields of our dataclasses are: X | None, tuples of one kind, dict[str, X], Literal, numbers, text."""
    if is_dataclass(kind):
        return _record(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return None if value is None else from_plain(inner[0], value, where)
    if origin is tuple and isinstance(value, list) and (inner[-1] is Ellipsis or len(inner) == len(value)):
        return tuple(from_plain(inner[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: from_plain(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is Literal and value in inner:
        return value
    if kind is float and isinstance(value, str) and value in WORDS:
        return WORDS[value]
    if kind is float and type(value) in (int, float):
        with suppress(OverflowError):
            return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    expected = ", ".join(map(str, inner)) if origin is Literal else kind.__name__ if origin is None else str(kind)
    raise InputError(f"{where}: {value!r:.80}; expected {expected}; was the file changed by hand?")


def _record(kind: Any, value: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {value!r:.80}; expected {', '.join(hints)}")
    required = {item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING}
    wrong = sorted((set(value) - set(hints)) | (required - set(value)))
    if wrong:
        raise InputError(f"{where}: {', '.join(wrong)} unknown or missing; written by another version of saccade?")
    values = {name: from_plain(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def differences(there: Any, here: Any, where: str = "") -> list[str]:
    """How settings that a file holds differ from those wanted, both as plain JSON values: one text per name, `a.b` for nested ones."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = sorted({*there, *here})
        return [line for name in names for line in differences(there.get(name), here.get(name), f"{where}.{name}".lstrip("."))]
    return [] if there == here else [f"{where}: there {there!r:.60}, here {here!r:.60}"]
