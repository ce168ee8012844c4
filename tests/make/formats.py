"""Every format that can be read, with a writer for tests: the laws and the fuzzer enumerate them."""

from collections.abc import Callable
from pathlib import Path

from saccade.events.write import write_events
from saccade.types import Events
from tests.make import aedat4, es, hdf5, prophesee, ros


def _write_txt(path: Path, events: Events) -> None:
    rows = zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), events.p.tolist(), strict=True)
    path.write_text(
        f"# sensor {events.width} x {events.height}\n" + "".join(f"{t // 10**6}.{t % 10**6:06} {x} {y} {p:d}\n" for t, x, y, p in rows)
    )


def _ours(path: Path, events: Events) -> None:
    write_events([events], path, width=events.width, height=events.height, overwrite=True)


# name: (suffix, writer, options with which the file opens where it doesn't state all)
FORMATS: dict[str, tuple[str, Callable[[Path, Events], object], dict]] = {
    "dat": (".dat", prophesee.write_dat, {}),
    "evt2": (".raw", lambda path, events: prophesee.write_raw(path, events, "EVT2"), {}),
    "evt21": (".raw", lambda path, events: prophesee.write_raw(path, events, "EVT2.1"), {}),
    "evt3": (".raw", lambda path, events: prophesee.write_raw(path, events, "EVT3"), {}),
    "hdf5": (".h5", hdf5.write, {}),
    "rvt": (".h5", hdf5.write_rvt, {}),
    "ecf": (".hdf5", hdf5.write_prophesee, {}),
    "aedat4": (".aedat4", aedat4.write, {}),
    "es": (".es", es.write, {}),
    "bag": (".bag", ros.write, {}),
    "mcap": (".mcap", ros.write, {}),
    "mcap_evt3": (".mcap", lambda path, events: ros.write(path, events, kind="evt3"), {}),
    "npz": (".npz", _ours, {}),
    "csv": (".csv", _ours, {}),
    "txt": (".txt", _write_txt, {"columns": "t x y p", "time_unit": "s", "width": 64, "height": 48}),
}


def make(name: str, folder: Path, events: Events) -> Path:
    path = folder / f"{name}{FORMATS[name][0]}"
    FORMATS[name][1](path, events)
    return path
