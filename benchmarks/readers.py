"""DAT, EVT2 and EVT3 against the fastest packages that decode them right, on the real recordings in ../shared/data, in the same run.

    taskset -c 0 python -m benchmarks.readers

Times are CPU seconds, best of many rounds in turn, because the machine is shared.
"""

import lzma
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from saccade.events.open import open_events

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ROUNDS = 25


def ours(path: Path) -> int:
    with open_events(path) as reader:
        return sum(len(events) for events in reader)


def expelliarmus(encoding: str) -> Callable[[Path], int]:
    from expelliarmus import Wizard

    def read(path: Path) -> int:
        wizard = Wizard(encoding=encoding)
        wizard.set_file(path)
        return len(wizard.read())

    return read


def evt3(path: Path) -> int:
    import evt3

    return len(evt3.decode_file(str(path)))


def best(functions: list[Callable[[Path], int]], path: Path) -> tuple[int, list[float]]:
    counts = {function(path) for function in functions}
    assert len(counts) == 1, f"{path}: decoders disagree on the number of events: {counts}"
    times = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            start = time.process_time()
            function(path)
            times[i] = min(times[i], time.process_time() - start)
    return counts.pop(), times


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"{DATA} isn't there: this benchmark needs the real recordings")
    with tempfile.TemporaryDirectory() as folder:
        twin = Path(folder) / "imx636_10.8s_evt3.raw"
        twin.write_bytes(lzma.decompress((DATA / "prophesee" / f"{twin.name}.xz").read_bytes()))
        cases = [
            ("DAT, Gen1", DATA / "gen1" / "clip_td.dat", "expelliarmus", expelliarmus("dat")),
            ("EVT2, 640 x 480", DATA / "prophesee" / "gen3_vga_grass_96ms_evt2.raw", "expelliarmus", expelliarmus("evt2")),
            ("EVT3, 1280 x 720, quiet", twin, "evt3", evt3),
            ("EVT3, 1280 x 720, driving", DATA / "prophesee" / "driving_1mpx_8.8ms_evt3.raw", "evt3", evt3),
        ]
        print("| recording | reference | its M events/s | saccade, M events/s | ratio |\n|---|---|--:|--:|--:|")
        for name, path, package, reference in cases:
            count, (theirs, our) = best([reference, ours], path)
            print(f"| {name} | {package} | {count / theirs / 1e6:.0f} | {count / our / 1e6:.0f} | {theirs / our:.2f} |")


if __name__ == "__main__":
    main()
