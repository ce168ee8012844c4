"""Files that are whole or not there: write under a temporary name, rename at the end; and a look at a path before it is opened."""

import glob
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saccade.types import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; at the end of the block it becomes `path`, after an error it vanishes."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a directory; expected a file name to write to")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part" + path.suffix, dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: can't write there ({error.strerror}); choose another folder") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
