"""Table 6: what mixes the pixels of a frame. `python -m experiments.mixers --help`

S5 as memory, the recipe of the world, unchanged. Block sizes of ConvNeXt and SSM2D are ours: the paper gives none.
"""

from experiments.table import Cell, Experiment, Ours, Row, Sheet
from experiments.variant import Variant
from experiments.world import World

# Model -> mAP on the test sets of Gen1 and 1 Mpx
TABLE_6 = {"S5-ViT-B": (47.71, 47.80), "S5-ConvNext-B": (45.92, 45.66), "S5-SSM2D-B": (46.10, 45.74)}
RUN = {"S5-ViT-B": Variant(), "S5-ConvNext-B": Variant(mixing="convnext"), "S5-SSM2D-B": Variant(mixing="ssm2d")}


def experiment(world: World) -> Experiment:
    columns = tuple(f"{data} mAP, paper" for data in ("Gen1", "1 Mpx") if data in world.papers)
    rows = []
    for model, variant in RUN.items():
        paper = (value for data, value in zip(("Gen1", "1 Mpx"), TABLE_6[model], strict=True) if data in world.papers)
        rows.append(Row((model,), (Ours(variant.name), *paper, Ours(variant.name, what="parameters"), Ours(variant.name, what="step_ms"))))
    return Experiment(
        name="mixers",
        title="Table 6: spatial mixers",
        about=(
            f"mAP at 20 Hz with attention (ViT), ConvNeXt blocks or scans along rows and columns (SSM2D), here of size '{world.size}'. "
            "In the paper attention is 1.6 to 2.1 mAP ahead."
        ),
        split="test",
        cells=tuple(Cell(name=variant.name, variant=variant, timed=True) for variant in RUN.values()),
        sheets=(
            Sheet(
                title="mAP at 20 Hz",
                labels=("model",),
                columns=("mAP, ours", *columns, "M parameters, ours", "ms per step, ours"),
                rows=tuple(rows),
                plot=("mAP, ours", *columns),
            ),
        ),
    )


if __name__ == "__main__":
    from experiments.command import main

    main(experiment)
