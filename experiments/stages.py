"""Table 4: which stages need memory. `python -m experiments.stages --help`

A stage without memory keeps its layer, but forgets at every step, in training too: the number of parameters stays. Every memory has the
recipe of the world, unchanged.
"""

from experiments.table import Cell, Entry, Experiment, Ours, Row, Sheet
from experiments.variant import Variant
from experiments.world import World
from saccade.config import MemoryName

MODELS: dict[str, MemoryName] = {"RVT": "lstm", "S4D": "s4d", "S5": "s5"}
# Stages 1 to 4 that remember -> mAP of RVT, S4D and S5, both with alpha = 0.5, on Gen1's validation set
TABLE_4 = {
    (False, False, False, False): (33.90, 39.99, 43.67),
    (False, False, False, True): (41.68, 43.11, 46.10),
    (False, False, True, True): (46.10, 45.33, 47.52),
    (False, True, True, True): (48.82, 47.02, 48.41),
    (True, True, True, True): (49.52, 47.33, 48.48),
}


def experiment(world: World) -> Experiment:
    variants = {
        (model, stages): Variant(memory=memory, remembers=stages)
        for stages in sorted(TABLE_4, key=lambda stages: (sum(stages) not in (0, 4), -sum(stages)))  # all and none tell most
        for model, memory in MODELS.items()
    }
    rows = []
    for stages, paper in TABLE_4.items():
        marks = tuple("x" if remembers else "" for remembers in stages)
        entries: list[Entry] = []
        for model, published in zip(MODELS, paper, strict=True):
            entries += [Ours(variants[model, stages].name), published]
        hidden = (Ours(variants[model, stages].name, what="recall_still") for model in MODELS)
        rows.append(Row(marks, (*entries, *hidden)))
    scores = tuple(f"{model}, {source}" for model in MODELS for source in ("ours", "paper"))
    return Experiment(
        name="stages",
        title="Table 4: stages with memory",
        about=(
            "mAP at 20 Hz with memory in some stages only (x); the others forget at every step. The paper's numbers are of Gen1's "
            "validation set. Hidden = recall of objects without events for over 0.25 s, which only a memory can find."
        ),
        split="val",
        cells=tuple(Cell(name=variant.name, variant=variant) for variant in variants.values()),
        sheets=(
            Sheet(
                title="mAP at 20 Hz",
                labels=("S1", "S2", "S3", "S4"),
                columns=(*scores, *(f"{model}, hidden" for model in MODELS)),
                rows=tuple(rows),
                plot=scores,
            ),
        ),
    )


if __name__ == "__main__":
    from experiments.command import main

    main(experiment)
