"""EVENTS -> FILE: HDF5 in DSEC's layout, DAT, npz, csv. Streaming, and a file is whole or not there."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from saccade.events.reader import Reader
from saccade.events.write_formats import write_csv, write_dat, write_hdf5, write_npz
from saccade.files import explain_full_disk, replacing
from saccade.types import Events, InputError

FORMATS: dict[str, Callable[[Iterator[Events], Path, int, int], None]] = {
    ".h5": write_hdf5,
    ".hdf5": write_hdf5,
    ".dat": write_dat,
    ".npz": write_npz,
    ".csv": write_csv,
}


def write_events(
    source: Reader | Iterable[Events],
    path: Path | str,
    *,
    width: int | None = None,
    height: int | None = None,
    source_path: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write all events of a reader, or of chunks that were mended, in the format that the suffix names; returns how many there were.

    Chunks carry the size of their sensor; give `width` and `height` where there may be none. `source_path` is the file that mended
    chunks come from (a reader knows it), so that it isn't written over while it is read. `progress` gets the number of events so far.
    """
    path = Path(path)
    check_target(path, source.path if isinstance(source, Reader) else source_path, overwrite)
    if isinstance(source, Reader):
        width, height = width or source.width, height or source.height
    chunks = iter(source)
    if not (width and height):
        first = next(chunks, None)
        if first is None:
            raise InputError(f"{path}: no events to write, and the size of the sensor isn't known; state width and height")
        width, height, chunks = width or first.width, height or first.height, chain((first,), chunks)
    counted = _Counted(chunks, progress)
    with explain_full_disk(path), replacing(path) as temporary:
        try:
            FORMATS[path.suffix.lower()](iter(counted), temporary, width, height)
        except InputError as error:
            raise InputError(str(error).replace(str(temporary), str(path))) from error  # the user knows nothing of our temporary name
    return counted.count


def check_target(path: Path, source: Path | None, overwrite: bool) -> None:
    """Raise InputError where writing would fail at the end, or lose something: before hours of work, not after."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected one of {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} doesn't exist; make it first")
    if path.exists():
        if source is not None and source.exists() and path.samefile(source):
            raise InputError(f"{path}: is the recording itself; write to another name")
        if not overwrite:
            raise InputError(f"{path}: exists already; give another name, or --overwrite to replace it")


class _Counted:
    """Passes chunks on, without the empty ones, and counts."""

    def __init__(self, chunks: Iterable[Events], progress: Callable[[int], None] | None) -> None:
        self.count = 0
        self._chunks = chunks
        self._progress = progress

    def __iter__(self) -> Iterator[Events]:
        for events in self._chunks:
            self.count += len(events)
            if len(events):
                yield events
            if self._progress:
                self._progress(self.count)
