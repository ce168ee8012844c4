"""Tables 2 and 5: one training at 20 Hz, run at any other rate. `python -m experiments.rates --help`

Beyond the paper: windows that slide, interleaved stepping, rates from 5 to 1000 Hz, irregular and lost windows, gated S5, and the
recall of objects that make no events, without which a flat curve may only say that there is no memory to get wrong.
Every memory has the recipe of the world, unchanged; the LSTM goes without nano's noise floor, with which it learns less. S4
has no choice of timescales or band limit: it starts as published.
"""

from experiments.table import AT_20_HZ, RATES_HZ, Cell, Experiment, Ours, Row, Sheet, in_hz, sampled, unique
from experiments.variant import NAMES, Variant
from experiments.world import World
from saccade.config import MemoryName
from saccade.evaluation.run.condition import Condition, EvaluationWindow, Stepping
from saccade.types import Counts

# Model, data set -> mAP at 20, 40, 80, 100, 200 Hz on the test set, mean drop
TABLE_2 = {
    ("RVT", "Gen1"): (47.16, 35.13, 21.98, 18.61, 8.35, 26.14),
    ("RVT", "1 Mpx"): (47.40, 42.51, 33.20, 30.29, 18.15, 16.36),
    ("S5", "Gen1"): (47.71, 46.44, 45.08, 42.49, 39.84, 4.25),
    ("S5", "1 Mpx"): (47.80, 46.49, 46.11, 45.80, 39.70, 3.27),
    ("GET", "Gen1"): (47.90, 34.15, 19.97, 15.13, 5.35, 29.25),
    ("GET", "1 Mpx"): (48.40, 40.51, 30.30, 28.11, 15.44, 19.81),
}
# Model, data set, size, strategy -> the same on the validation set
TABLE_5 = {
    ("RVT", "Gen1", "Base", "-"): (49.52, 37.16, 23.25, 19.36, 7.83, 27.62),
    ("RVT", "Gen1", "Small", "-"): (48.68, 35.28, 19.95, 16.05, 5.75, 29.42),
    ("RVT", "1 Mpx", "Base", "-"): (45.95, 40.93, 31.70, 29.00, 18.16, 16.00),
    ("S4D", "Gen1", "Base", "H2"): (46.83, 45.98, 43.91, 40.10, 36.11, 5.31),
    ("S4D", "Gen1", "Base", "alpha"): (47.33, 46.36, 44.51, 40.02, 35.98, 5.61),
    ("S4D", "Gen1", "Small", "H2"): (45.88, 45.11, 41.05, 38.00, 34.05, 6.33),
    ("S4D", "Gen1", "Small", "alpha"): (46.30, 45.21, 42.11, 38.61, 33.00, 6.57),
    ("S4D", "1 Mpx", "Base", "H2"): (46.66, 45.85, 43.33, 41.80, 37.01, 4.66),
    ("S4D", "1 Mpx", "Base", "alpha"): (47.93, 46.78, 44.56, 41.11, 36.18, 5.77),
    ("S5", "Gen1", "Base", "H2"): (48.60, 47.11, 46.06, 43.80, 40.51, 4.23),
    ("S5", "Gen1", "Base", "alpha"): (48.48, 47.34, 46.11, 43.23, 40.03, 4.30),
    ("S5", "Gen1", "Small", "H2"): (47.33, 46.32, 44.03, 41.12, 38.98, 4.72),
    ("S5", "Gen1", "Small", "alpha"): (47.83, 46.58, 44.46, 41.11, 38.95, 5.06),
    ("S5", "1 Mpx", "Base", "H2"): (48.65, 47.53, 47.11, 46.63, 40.91, 3.11),
    ("S5", "1 Mpx", "Base", "alpha"): (48.35, 47.60, 47.21, 46.50, 40.80, 2.82),
}

MEMORIES: tuple[MemoryName, ...] = ("s5", "lstm", "gs5", "s4d", "s4")
BASELINE: MemoryName = "lstm"  # what the others are compared with
WAYS: tuple[tuple[EvaluationWindow, Stepping], ...] = (
    ("sliding", "direct"),
    ("sliding", "interleaved"),
    ("disjoint", "direct"),
    ("disjoint", "interleaved"),
    ("shrunk", "direct"),  # a frame every 50 ms at any rate: nothing to interleave
)
SHORT: tuple[EvaluationWindow, ...] = ("disjoint", "shrunk")  # windows shorter than in training, whose counts may be held
SLOW_HZ, FAST_HZ = (5.0, 10.0), (500.0, 1000.0)  # not shrunk: longer windows would overlap, and 1 ms of every 50 is next to nothing
STEPPINGS: tuple[Stepping, ...] = ("direct", "interleaved")
IRREGULAR = tuple(
    Condition(rate_hz=rate_hz, stepping=stepping, jitter=jitter, drop=drop)
    for stepping in STEPPINGS
    for rate_hz in (20.0, 100.0)
    for jitter, drop in ((0.3, 0.0), (0.0, 0.2))
)
FAST = tuple(f"-fast-{window}{ending}" for window in ("sliding", "disjoint") for ending in ("", "-interleaved"))
ADAPTIVE = tuple(Condition(rate_hz=200.0, stepping=stepping, min_rate_hz=5.0) for stepping in STEPPINGS)
PARTS = ("", "-held", "-irregular", "-adaptive", "-slow", *FAST)  # cells of a memory; the fast ones take hours at full size


def part_of(condition: Condition) -> str:
    if condition.counts == "held":
        return "-held"
    if condition.jitter or condition.drop:
        return "-irregular"
    if condition.min_rate_hz:
        return "-adaptive"
    if condition.rate_hz in SLOW_HZ:
        return "-slow"
    interleaved = "-interleaved" if condition.stepping == "interleaved" else ""
    return f"-fast-{condition.window}{interleaved}" if condition.rate_hz in FAST_HZ else ""


def rates_of(window: EvaluationWindow) -> tuple[float, ...]:
    return RATES_HZ if window == "shrunk" else (*SLOW_HZ, *RATES_HZ, *FAST_HZ)


def experiment(world: World) -> Experiment:
    short = unique(*(sampled(window, "direct", counts="held") for window in SHORT))
    every = unique(*(sampled(*way, rates_of(way[0])) for way in WAYS), short, IRREGULAR, ADAPTIVE)
    return Experiment(
        name="rates",
        title="Tables 2 and 5: one training, any rate",
        about=(
            "The paper trains at 20 Hz and runs at up to 200 Hz, each time on the events of the last 1 / rate seconds of every 50 ms "
            "(shrunk): S5 loses 3.8 mAP on average, RVT 21.3. Sliding windows keep their 50 ms and move by 1 / rate; disjoint ones are "
            "as long as the step, and no event is left out. Direct stepping advances one state by the true time; interleaved "
            "stepping continues from the state of 50 ms before. Held counts take what a short window holds to have gone on for as long as "
            "the windows of the training. Hidden = recall of objects without events for over 0.25 s. The paper's "
            "rows stand where its way of sampling is. RVT's memory is an LSTM, which doesn't know the time; nano's noise floor is "
            "left out there, because it learns less with it. An adaptive rate steps once a tenth as many events came as there are pixels. "
            "With an adaptive rate, and with irregular or lost windows, the newest frame may be old when it is scored: part of what is "
            "lost there is staleness."
        ),
        split="test",
        cells=tuple(
            Cell(
                name=memory + ending,
                variant=Variant(memory=memory),
                conditions=short if ending == "-held" else tuple(condition for condition in every if part_of(condition) == ending),
            )
            for ending in PARTS
            for memory in MEMORIES
        ),
        sheets=(
            *(_sheet(world, *way) for way in WAYS),
            *(_sheet(world, window, "direct", "held") for window in SHORT),
            _irregular(),
            _adaptive(),
        ),
    )


def _sheet(world: World, window: EvaluationWindow, stepping: Stepping, counts: Counts = "plain") -> Sheet:
    """Held counts have a cell of their own, 20 Hz included, where they are the plain ones."""
    rates_hz = rates_of(window) if counts == "plain" else RATES_HZ
    paper = sampled(window, stepping, counts=counts)
    rows = []
    for memory in MEMORIES:
        main = memory + part_of(paper[-1])
        scores = (
            Ours(main if condition in paper else memory + part_of(condition), (condition,))
            for condition in sampled(window, stepping, rates_hz, counts)
        )
        hidden = (Ours(main, (condition,), "recall_still") for condition in (AT_20_HZ, paper[-1]))
        fastest = paper[-1]
        gain = None if memory == BASELINE else Ours(main, (fastest,), "gain", over=BASELINE + part_of(fastest))
        rows.append(Row((NAMES[memory], "ours"), (*scores, Ours(main, paper, "drop"), gain, *hidden)))
    if window == "shrunk" and counts == "plain":
        rows += paper_rows(world)
    return Sheet(
        title=f"{window} windows, {stepping} stepping" if counts == "plain" else f"{window} windows, {counts} counts",
        labels=("model", "source"),
        columns=(*in_hz(rates_hz), "mean drop", f"less {NAMES[BASELINE]}, 200 Hz", "hidden, 20 Hz", "hidden, 200 Hz"),
        rows=tuple(rows),
        plot=in_hz(rates_hz),
        lines=True,
    )


def paper_rows(world: World) -> list[Row]:
    """Table 2 whole, and of table 5 the masked base models."""
    test = [
        Row((model, f"paper, table 2, {data}, test"), (*values, None, None, None))
        for (model, data), values in TABLE_2.items()
        if data in world.papers
    ]
    validation = [
        Row((model, f"paper, table 5, {data}, val"), (*values, None, None, None))
        for (model, data, size, strategy), values in TABLE_5.items()
        if data in world.papers and size == "Base" and strategy != "H2"
    ]
    return test + validation


def _irregular() -> Sheet:
    kinds = [condition for condition in IRREGULAR if condition.stepping == "direct"]
    rows = []
    for memory in MEMORIES:
        for stepping in STEPPINGS:
            chosen = [condition for condition in IRREGULAR if condition.stepping == stepping]
            regular = sampled("sliding", stepping, (20.0, 100.0))
            entries = (
                *(Ours(memory, (condition,)) for condition in regular),
                *(Ours(f"{memory}-irregular", (condition,)) for condition in chosen),
            )
            rows.append(Row((NAMES[memory], stepping), entries))
    columns = tuple(
        f"{condition.rate_hz:g} Hz, " + (f"jitter {condition.jitter:g}" if condition.jitter else f"{condition.drop:.0%} lost")
        for condition in kinds
    )
    columns = ("20 Hz", "100 Hz", *columns)
    return Sheet(title="irregular and lost windows, sliding", labels=("model", "stepping"), columns=columns, rows=tuple(rows), plot=columns)


def _adaptive() -> Sheet:
    """Beside the two rates that it lies between; the time from step to step is another one each time."""
    rows = []
    for memory in MEMORIES:
        for condition in ADAPTIVE:
            constant = sampled("sliding", condition.stepping, (20.0, 200.0))
            of = [*((memory, one) for one in constant), (f"{memory}-adaptive", condition)]
            scores = [Ours(cell, (one,), what) for what in ("mAP", "recall_still") for cell, one in of]
            rows.append(Row((NAMES[memory], condition.stepping), (*scores, Ours(f"{memory}-adaptive", (condition,), "steps_per_s"))))
    columns = ("20 Hz", "200 Hz", "5 to 200 Hz")
    return Sheet(
        title="adaptive rate, sliding",
        labels=("model", "stepping"),
        columns=(*columns, *(f"hidden, {name}" for name in columns), "steps per second of 5 to 200"),
        rows=tuple(rows),
        plot=columns,
    )


if __name__ == "__main__":
    from experiments.command import main

    main(experiment)
