"""S3 <-> FILES: s3://BUCKET/PATH as a Path. What is opened is read from a local copy, fetched whole, kept by its ETag, up to a size limit.

Server and keys are those of AWS's own settings (AWS_ENDPOINT_URL, AWS_PROFILE, ...). The copies lie in $SACCADE_CACHE/s3, 50 GB of them or
$SACCADE_CACHE_GB; who was used least recently goes first.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PosixPath
from typing import Any, TypeVar

from saccade.types import InputError

Reply = TypeVar("Reply")

SCHEME = "s3:"
TRIES = 6  # of what fails, each with three tries of every request
KNOWN_S = 10.0  # so long an object is taken for what the server last said; a folder a tenth of it
RECENT_S = 60.0  # a copy that was used since then isn't removed
GIGABYTES = 50.0


def located(path: os.PathLike[str] | str) -> Path:
    """A Path, that of an object on S3 if it begins with s3://; pathlib makes s3:/ of that, which is understood, too."""
    if isinstance(path, S3Path):
        return path
    text = str(path) if isinstance(path, Path) else os.fspath(path)
    return S3Path(text) if text.startswith(f"{SCHEME}/") else Path(path)


def on_disk(path: Path) -> Path:
    """PATH, or the local copy of an object, for libraries that open it later or elsewhere."""
    return path.local() if isinstance(path, S3Path) else path


def cache_folder() -> Path:
    """$SACCADE_CACHE, or the user's cache folder."""
    if folder := os.environ.get("SACCADE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


class S3Path(PosixPath):
    """What our code does with paths, for objects on S3. A folder is there if an object is in it; writing goes through `files.replacing`."""

    @property
    def key(self) -> str:
        """BUCKET/PATH."""
        return "/".join(self.parts[1:])

    @property
    def etag(self) -> str:
        """Another one if the object is another."""
        return str(_look(self).get("ETag"))

    def __str__(self) -> str:
        return f"{SCHEME}//{self.key}" if self.parts[:1] == (SCHEME,) else super().__str__()

    def __fspath__(self) -> str:
        return str(self.local()) if self.parts[:1] == (SCHEME,) else super().__fspath__()

    def local(self) -> Path:
        """The copy on this disk, fetched if it isn't there. Other processes wait for it; none sees half of one."""
        for _ in range(TRIES):
            found = _look(self)
            if found["type"] == "directory":
                raise IsADirectoryError(errno.EISDIR, "Is a directory", str(self))
            copy = _copy_of(self, found)
            with _alone(copy.parent):
                if copy.exists():
                    os.utime(copy)
                    return copy
                _make_room(str(self), found["size"])
                part = copy.with_name(f".{copy.name}.part")
                _ask(str(self), partial(_server().get_file, self.key, str(part)))
                _known.pop(self.key, None)
                if part.stat().st_size == found["size"] and _look(self).get("ETag") == found.get("ETag"):
                    os.replace(part, copy)
                    return copy
                part.unlink()  # it was replaced meanwhile
        raise InputError(f"{self}: changes while it is read; wait until it is written")

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = _look(self)
        kind = stat.S_IFDIR | 0o755 if found["type"] == "directory" else stat.S_IFREG | 0o644
        changed = found["LastModified"].timestamp() if found.get("LastModified") else 0
        return os.stat_result((kind, 0, 0, 1, 0, 0, found["size"] or 0, changed, changed, changed))

    def exists(self, **options: Any) -> bool:
        return self._type() is not None

    def is_file(self, **options: Any) -> bool:
        return self._type() == "file"

    def is_dir(self, **options: Any) -> bool:
        return self._type() == "directory"

    def _type(self) -> str | None:
        try:
            return _look(self)["type"]
        except FileNotFoundError:
            return None

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if set(mode) & set("wax+"):
            raise InputError(f"{self}: can't be written in place; only whole files are written to S3")
        return open(self.local(), mode, *arguments, **options)

    def iterdir(self) -> Generator["S3Path", None, None]:
        for found in _list(self):
            yield self / found["name"].rsplit("/", 1)[-1]

    def glob(self, pattern: str, **options: Any) -> Iterator["S3Path"]:  # type: ignore[override]
        first, _, rest = pattern.partition("/")
        for found in _list(self):
            path = self / found["name"].rsplit("/", 1)[-1]
            if fnmatchcase(path.name, first):
                if not rest:
                    yield path
                elif found["type"] == "directory":
                    yield from path.glob(rest)

    def rglob(self, pattern: str, **options: Any) -> Iterator["S3Path"]:  # type: ignore[override]
        yield from self.glob(pattern)
        for found in _list(self):
            if found["type"] == "directory":
                yield from (self / found["name"].rsplit("/", 1)[-1]).rglob(pattern)

    def mkdir(self, *arguments: Any, **options: Any) -> None:
        """Nothing to do: an object brings its folder."""

    def unlink(self, missing_ok: bool = False) -> None:
        _forget(self)
        try:
            _ask(str(self), lambda: _server().rm_file(self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def samefile(self, other: Any) -> bool:
        return located(other) == self

    def resolve(self, strict: bool = False) -> "S3Path":
        return self

    def absolute(self) -> "S3Path":
        return self

    def is_absolute(self) -> bool:
        return True


def outgoing(path: Path) -> Path:
    """A new name on this disk for what will be uploaded to PATH."""
    folder = cache_folder() / "s3" / "outgoing"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{path.stem}.{secrets.token_hex(4)}.part{path.suffix}"


def upload(file: Path, path: S3Path, *, keep: bool = False) -> None:
    """Write the object, which appears when it is whole; the file becomes the local copy of it, or stays where it is if KEEP."""
    size = file.stat().st_size
    _ask(str(path), lambda: _server().put_file(str(file), path.key))
    _forget(path)
    found = _look(path)
    if found["size"] != size:
        raise InputError(f"{path}: {found['size']:,} of {size:,} bytes arrived; does another program write there?")
    if not keep:
        copy = _copy_of(path, found)
        with _alone(copy.parent):
            os.replace(file, copy)


_known: dict[str, tuple[float, dict[str, Any]]] = {}  # objects, by key: until when, what the server said
_listed: dict[str, tuple[float, list[dict[str, Any]]]] = {}  # folders, likewise


def _look(path: S3Path) -> dict[str, Any]:
    """Size, ETag, type; FileNotFoundError if there is nothing."""
    until, found = _known.get(path.key, (0.0, {}))
    if time.monotonic() < until:
        return found
    found = _ask(str(path), lambda: _server().info(path.key))
    if found["type"] != "directory":
        _known[path.key] = time.monotonic() + KNOWN_S, found
    return found


def _list(path: S3Path) -> list[dict[str, Any]]:
    """What is in a folder; nothing in one that isn't there."""
    until, found = _listed.get(path.key, (0.0, []))
    if time.monotonic() < until:
        return found
    try:
        found = _ask(str(path), lambda: _server().ls(path.key, detail=True))
    except FileNotFoundError:
        found = []
    found = [one for one in found if one["name"].rstrip("/") != path.key]
    _listed[path.key] = time.monotonic() + KNOWN_S / 10, found
    for one in found:
        if one["type"] == "file":
            _known[one["name"]] = time.monotonic() + KNOWN_S, one
    return found


def _forget(path: S3Path) -> None:
    _known.pop(path.key, None)
    _listed.clear()


def _server() -> Any:
    """fsspec keeps it, one for each process: a forked one gets its own."""
    if find_spec("s3fs") is None:
        raise InputError('s3://: needs the package s3fs, which isn\'t installed; `pip install "saccade-events[s3]"`')
    import fsspec

    return fsspec.filesystem("s3", use_listings_cache=False, config_kwargs={"retries": {"max_attempts": 3, "mode": "standard"}})


def _ask(what: str, request: Callable[[], Reply]) -> Reply:
    """REQUEST(), again if the server fails; what can't be mended by that is InputError, what isn't there FileNotFoundError."""
    for attempt in range(TRIES):
        try:
            return request()
        except (FileNotFoundError, InputError):
            raise
        except PermissionError as error:
            raise InputError(f"{what}: no permission ({error}); are AWS_PROFILE or the keys those of this bucket?") from error
        except Exception as error:  # of s3fs, botocore and aiohttp, with no class in common
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):  # of this disk
                raise
            reason = f"{type(error).__name__}: {error!s:.150}"
            if "Credentials" in reason:
                keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                raise InputError(f"{what}: no keys for S3 ({reason}); set AWS_PROFILE, or {keys}") from error
            if attempt + 1 == TRIES:
                raise InputError(f"{what}: the server failed {TRIES} times ({reason}); try again later") from error
            time.sleep(0.1 * 2**attempt)
    raise AssertionError


def _copy_of(path: S3Path, found: dict[str, Any]) -> Path:
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    name = hashlib.sha256(f"{server}|{path.key}|{found.get('ETag')}|{found['size']}".encode()).hexdigest()[:32]
    return cache_folder() / "s3" / "copies" / name / path.name


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Whoever comes second waits; the lock of a dead process is void."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _make_room(what: str, size: int) -> None:
    """Remove the copies that weren't used for longest, until SIZE bytes more keep to the limit; those in use a moment ago stay."""
    limit = float(os.environ.get("SACCADE_CACHE_GB") or GIGABYTES) * 1e9
    if size > limit:
        raise InputError(f"{what}: has {size / 1e9:.3g} GB, the local copies at most {limit / 1e9:.3g}; set SACCADE_CACHE_GB to more")
    copies = []
    for copy in (cache_folder() / "s3" / "copies").glob("*/*"):
        with suppress(FileNotFoundError):
            if copy.name != ".lock":
                copies.append((copy.stat().st_mtime, copy.stat().st_size, copy))
    total = sum(one[1] for one in copies) + size
    for used, freed, copy in sorted(copies):
        if total <= limit or used > time.time() - RECENT_S:
            return
        copy.unlink(missing_ok=True)  # who has it open reads on
        total -= freed
