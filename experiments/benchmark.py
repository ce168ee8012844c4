"""Table 1: detectors at 20 Hz, their time per step and their size. `python -m experiments.benchmark --help`

Run here: the paper's own rows, RVT, and gated S5, which is ours. Every memory has the recipe of the world, unchanged. The paper timed
a T4 GPU, batch 1; ours is the machine that ran the cell, so only the ratios compare.
"""

from dataclasses import dataclass

from experiments.table import Cell, Experiment, Ours, Row, Sheet
from experiments.variant import Variant
from experiments.world import World


@dataclass(frozen=True)
class Published:
    """A row of the table: mAP and milliseconds on Gen1 and 1 Mpx, millions of parameters; None where it has a dash."""

    gen1: float
    gen1_ms: float | None
    one_mpx: float | None
    one_mpx_ms: float | None
    parameters: float | str


TABLE_1 = {
    "Asynet": Published(14.5, None, None, None, 11.4),
    "AEGNN": Published(16.3, None, None, None, 20.0),
    "Spiking DenseNet": Published(18.9, None, None, None, 8.2),
    "Inception + SSD": Published(30.1, 19.4, 34.0, 45.2, ">60*"),
    "RRC-Events": Published(30.7, 21.5, 34.3, 46.4, ">100*"),
    "MatrixLSTM": Published(31.0, None, None, None, 61.5),
    "YOLOv3 Events": Published(31.2, 22.3, 34.6, 49.4, ">60*"),
    "RED": Published(40.0, 16.7, 43.0, 39.3, 24.1),
    "ERGO-12": Published(50.4, 69.9, 40.6, 100.0, 59.6),
    "RVT-B": Published(47.2, 10.2, 47.4, 11.9, 18.5),
    "Swin-T v2": Published(45.5, 26.6, 46.4, 34.5, 21.1),
    "Nested-T": Published(46.3, 25.9, 46.0, 33.5, 22.2),
    "GET-T": Published(47.9, 16.8, 48.4, 18.2, 21.9),
    "S4D-ViT-B": Published(46.2, 9.40, 46.8, 10.9, 16.5),
    "S5-ViT-B": Published(47.7, 8.16, 47.8, 9.57, 18.2),
    "S5-ViT-S": Published(46.6, 7.81, 46.5, 8.87, 9.7),
}
RUN = {
    "S5-ViT-B": Variant(),
    "RVT-B": Variant(memory="lstm"),
    "gated S5, ours": Variant(memory="gs5"),
    "S4D-ViT-B": Variant(memory="s4d"),
    "S5-ViT-S": Variant(small=True),
}


def experiment(world: World) -> Experiment:
    columns = {"Gen1": ("Gen1 mAP, paper", "Gen1 ms, paper"), "1 Mpx": ("1 Mpx mAP, paper", "1 Mpx ms, paper")}
    shown = tuple(column for paper in world.papers for column in columns[paper])
    rows = []
    for method in (*TABLE_1, *(name for name in RUN if name not in TABLE_1)):
        cell = RUN[method].name if method in RUN else None
        ours = (Ours(cell), Ours(cell, what="step_ms"), Ours(cell, what="parameters")) if cell else (None, None, None)
        published = TABLE_1.get(method)
        paper = {"Gen1": (published.gen1, published.gen1_ms), "1 Mpx": (published.one_mpx, published.one_mpx_ms)} if published else {}
        numbers = tuple(number for name in world.papers for number in paper.get(name, (None, None)))
        rows.append(Row((method,), (*ours, *numbers, published.parameters if published else None)))
    return Experiment(
        name="benchmark",
        title="Table 1: detectors at 20 Hz",
        about=(
            f"Rows with numbers of ours are of size '{world.size}' (S: three quarters of the channels). Milliseconds are of one step "
            "alone, batch 1: the paper's on a T4, ours on the machine that ran it. A star is the paper's for an estimate."
        ),
        split="test",
        cells=tuple(Cell(name=variant.name, variant=variant, timed=True) for variant in RUN.values()),
        sheets=(
            Sheet(
                title="20 Hz",
                labels=("method",),
                columns=("mAP, ours", "ms, ours", "M parameters, ours", *shown, "M parameters, paper"),
                rows=tuple(rows),
                plot=("mAP, ours", *(column for column in shown if "mAP" in column)),
            ),
        ),
    )


if __name__ == "__main__":
    from experiments.command import main

    main(experiment)
