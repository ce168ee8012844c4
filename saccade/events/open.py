"""Open any recording; the format is recognised by the file's first bytes, never by its name alone."""

from collections.abc import Callable
from pathlib import Path

from saccade.events.aedat4 import Aedat4Reader
from saccade.events.es import EsReader
from saccade.events.hdf5 import Hdf5Reader
from saccade.events.mend import MOST_PIXELS
from saccade.events.npz import NpzReader
from saccade.events.prophesee import DatReader, RawReader, read_header
from saccade.events.reader import Reader
from saccade.events.ros import RosReader
from saccade.events.text import TextReader
from saccade.files import check_readable
from saccade.s3 import located
from saccade.types import InputError

MAGIC = {
    b"\x89HDF": "hdf5",
    b"#!AER-DAT4": "aedat4",
    b"Event Stream": "es",
    b"#ROSBAG": "ros",
    b"\x89MCAP": "ros",
    b"PK": "npz",
}
# Formats that are recognised but not read: (first bytes, name, what to do).
UNSUPPORTED = (
    (b"\xfd7zXZ", "xz-compressed", "unpack it first: `xz --decompress --keep {path}`"),
    (b"\x1f\x8b", "gzip-compressed", "unpack it first: `gzip --decompress --keep {path}`"),
    (b"BZh", "bzip2-compressed", "unpack it first: `bzip2 --decompress --keep {path}`"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first: `zstd --decompress {path}`"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it first"),
    (b"Rar!", "a RAR archive", "unpack it first"),
    (b"#!AER-DAT2", "AEDAT 2", "convert it to AEDAT 4 with iniVation's DV"),
    (b"#!AER-DAT3", "AEDAT 3", "convert it to AEDAT 4 with iniVation's DV"),
    (b"SQLite format 3", "a ROS 2 bag in the old .db3 storage", "convert it: `ros2 bag convert` to the mcap storage"),
)


def open_events(
    path: str | Path,
    *,
    width: int | None = None,
    height: int | None = None,
    columns: str | None = None,
    time_unit: str | None = None,
    topic: str | None = None,
    index: str | Path | None = None,
) -> Reader:
    """Open any event recording; close it by `with` or `.close()`.

    width, height: sensor size in pixels, where the file doesn't state it (or states it wrong).
    columns: for npz, csv and txt, e.g. "t x y p"; time_unit: for these and HDF5, one of us, ns, ms, s. What isn't given is read from
        the file or inferred, with a note.
    topic: for ROS bags with several event topics.
    index: file for the time index; by default in the cache folder ($SACCADE_CACHE or ~/.cache/saccade).
    """
    path = located(path)
    check_readable(path)
    _check_sensor(path, width, height)
    index_path = Path(index) if index else None
    family = recognise(path)
    _check_options(path, family, columns=columns, time_unit=time_unit, topic=topic)
    makers: dict[str, Callable[[], Reader]] = {
        "dat": lambda: DatReader(path, width=width, height=height),
        "raw": lambda: RawReader(path, width=width, height=height, index_path=index_path),
        "hdf5": lambda: Hdf5Reader(path, width=width, height=height, time_unit=time_unit),
        "aedat4": lambda: Aedat4Reader(path, index_path=index_path),
        "es": lambda: EsReader(path, index_path=index_path),
        "ros": lambda: RosReader(path, topic=topic, index_path=index_path),
        "npz": lambda: NpzReader(path, width=width, height=height, columns=columns, time_unit=time_unit),
        "text": lambda: TextReader(path, width=width, height=height, columns=columns, time_unit=time_unit, index_path=index_path),
    }
    reader = makers[family]()
    if width is not None and height is not None:  # they override what the file states
        reader.width, reader.height = width, height
    if reader.width * reader.height > MOST_PIXELS:
        reader.close()
        raise InputError(f"{path}: states a sensor of {reader.width} x {reader.height} pixels, more than any has; state width= and height=")
    return reader


def dsec_events(folder: Path) -> Path | None:
    """The recording of a sequence in DSEC's layout, whose folder this is; None if it is none."""
    places = (folder / "events" / "left" / "events.h5", folder / "events" / "events.h5", folder / "events.h5")
    return next((path for path in places if path.is_file()), None)


def recognise(path: Path) -> str:
    """Name of the reader for a file (a key of `makers`), by its first bytes."""
    with path.open("rb") as file:
        start = file.read(4096)
    if not start:
        raise InputError(f"{path}: is empty (0 bytes); the recording was never written")
    for magic, family in MAGIC.items():
        if start.startswith(magic):
            return family
    for magic, name, advice in UNSUPPORTED:
        if start.startswith(magic):
            raise InputError(f"{path}: is {name}; {advice.format(path=path)}")
    if start.startswith(b"% "):
        fields, _ = read_header(path)
        if "evt" in fields or "format" in fields:
            return "raw"
        if path.suffix.lower() == ".dat" or {"version", "width", "height", "data"} & fields.keys():
            return "dat"
    if path.suffix.lower() in (".dat", ".raw"):
        raise InputError(f"{path}: doesn't begin with Prophesee's header (lines that start with %), so its layout is unknown")
    if b"\0" in start:
        raise InputError(f"{path}: no recording we know; expected DAT, RAW, HDF5, AEDAT4, ROS bag, MCAP, ES, npz, csv or txt")
    return "text"


def _check_sensor(path: Path, width: int | None, height: int | None) -> None:
    if (width is None) != (height is None):
        raise InputError(f"{path}: width={width}, height={height}; expected both or none")
    if width is not None and height is not None and not (0 < width <= 65535 and 0 < height <= 65535):
        raise InputError(f"{path}: width={width}, height={height}; expected sizes from 1 to 65535 pixels")


def _check_options(path: Path, family: str, **options: str | None) -> None:
    """Raise InputError for an option that the format would ignore."""
    users = {"columns": ("npz", "text"), "time_unit": ("npz", "text", "hdf5"), "topic": ("ros",)}
    for name, value in options.items():
        if value is not None and family not in users[name]:
            raise InputError(f"{path}: {name}={value!r} has no meaning for a file of this format; leave it out")
