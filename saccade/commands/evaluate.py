"""`saccade evaluate`: weights + a data set -> a score at every rate, and a report."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from tqdm import tqdm

from saccade.cluster import LOCAL, check_place
from saccade.commands.data import Folder, Split
from saccade.commands.options import Device, On
from saccade.commands.weights import WeightsFile
from saccade.datasets.classes import with_class_map
from saccade.datasets.open import DatasetKind, fixed_sampling, open_to_score
from saccade.datasets.recording import Dataset, Sampling
from saccade.evaluation.result import Evaluation, write_evaluation
from saccade.evaluation.run.condition import RATES_HZ, Condition, EvaluationWindow
from saccade.evaluation.score.mistakes import Mistake, worst_mistakes
from saccade.evaluation.score.protocol import protocol_of
from saccade.evaluation.show.charts import plot_rates
from saccade.evaluation.show.report import Gallery, write_report
from saccade.evaluation.show.table import conditions_table, described, differences_table, markdown, rates_table, to_text
from saccade.files import replacing
from saccade.outputs.picture import colours
from saccade.types import Counts, InputError, Stepping

PICTURE_RATE_HZ = 200  # of the grid on which the frame nearest to a mistake is drawn


def evaluate(
    weights: WeightsFile,
    dataset: Folder,
    *,
    rates: tuple[float, ...] = RATES_HZ,
    window: tuple[EvaluationWindow, ...] = ("sliding",),
    stepping: tuple[Stepping, ...] = ("direct",),
    counts: tuple[Counts, ...] = ("held",),
    min_rate: tuple[float, ...] = (0.0,),
    jitter: tuple[float, ...] = (0.0,),
    drop: tuple[float, ...] = (0.0,),
    reset_every: tuple[int, ...] = (0,),
    seed: int = 0,
    split: Split | None = None,
    kind: DatasetKind | None = None,
    class_map: tuple[str, ...] = (),
    recordings: int = 0,
    beside: tuple[str, ...] = (),
    protocol: Literal["saccade", "prophesee"] = "saccade",
    label_rate: float = 20.0,
    latency_ms: float | Literal["measured"] | None = None,
    batch: int = 8,
    processes: int = 0,
    on: On = LOCAL,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """Score WEIGHTS on DATASET at every rate of --rates: `saccade evaluate best.safetensors streets --rates 20 200 --out scores`.

    Recordings run as streams with carried memory, and every rate is scored at the same label times, so its numbers can be compared. Several
    windows, steppings, ... give a row of the table for each combination. In brackets: 95 % intervals, by bootstrap over the recordings.
    The same command goes on where it was interrupted.

    Args:
        rates: Frames per second of event time at which the detector runs, 1 to 1000, as `20 200` or `20,200`. This alone sets the rate.
        window: Window of a frame. Sliding: as long as in training; disjoint: as long as the step; shrunk: so, but once per training window.
        stepping: Which earlier state each frame continues from. Direct: the previous frame; interleaved: one training window ago.
        counts: Event counts of windows shorter than in training. Held: as if what they hold had gone on for so long. Plain: the paper's.
        min_rate: Lowest rate of an adaptive one: a step per (pixels / 10) events, between this rate and those of --rates; 0 = constant.
        jitter: Irregular frames: each step is randomly longer or shorter by up to this fraction, 0 to below 1.
        drop: Lost frames: this share of them is left out at random; the memory gets the true time step.
        reset_every: Reset the memory after so many frames, as the published evaluation does (21, or 10 for 1 Mpx); 0 = never.
        seed: Random seed: for jitter and drop.
        split: Only this split; test if not given, or else what there is.
        kind: Layout of the data set; recognised by its files if not given.
        class_map: Classes of the data set under the names that the weights know, as `bicycle=two-wheeler rider=`; without a name after
            the sign, it is neither right nor wrong to find them. Others match by name.
        recordings: Score only the first so many recordings; 0 = all.
        beside: Further weights; they are scored in the same way and shown in the same table and report.
        protocol: Saccade: frames without objects count, boxes ranked by objectness x class. Prophesee: the rules that papers use.
        label_rate: Thin denser labels to so many instants per second (simulated ones have 200).
        latency_ms: Also compute streaming AP: what would be ready in time if a step took so long, or `measured` on this machine.
        batch: Recordings that go through a GPU together; changes speed and memory use, not the scores.
        processes: Number of processes; 0 = one per core, on a GPU one. Changes speed and memory use, not the scores.
        on: Where it is computed: local, or a Ray cluster, whose nodes see DATASET and OUT under the same names; the same scores.
        device: Where to compute; auto: the GPU if there is one.
        out: Folder for report.html, table.md, rates.png, evaluation.json and all detections; if not given, the table is only printed.
    """
    check_place(on)
    conditions = conditions_of(rates, window, stepping, jitter, drop, reset_every, seed, counts, min_rate)
    if min(recordings, seed, processes) < 0 or batch < 1 or not label_rate > 0:
        given = f"--recordings {recordings}, --seed {seed}, --processes {processes}, --batch {batch}, --label-rate {label_rate:g}"
        raise InputError(f"{given}: expected 0 or more for the first three, at least 1 for the batch, and a label rate above 0")
    names = _class_map(class_map)
    from saccade.weights.load import load_detector

    opened = open_to_score(dataset, split, kind, halve=load_detector(weights).config.halved)
    opened = replace(opened, recordings=opened.recordings[: recordings or None])
    opened = with_class_map(opened, names) if names else opened
    options = {"protocol": protocol, "label_rate_hz": label_rate, "latency_ms": latency_ms, "batch": batch, "on": on}
    _run([weights, *beside], opened, conditions, out, device, processes, options)


def _class_map(pairs: Sequence[str]) -> dict[str, str]:
    parts = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (name, sign, _) in zip(pairs, parts, strict=True) if not (sign and name.strip())]
    if wrong:
        raise InputError(f"--class-map {wrong[0]}: expected NAME=OTHER, such as bicycle=two-wheeler, or NAME= to ignore a class")
    return {name.strip(): other.strip() for name, _, other in parts}


def _run(
    several: Sequence[Path | str],
    dataset: Dataset,
    conditions: list[Condition],
    out: Path | None,
    device: str,
    processes: int,
    options: dict[str, Any],
) -> None:
    """SEVERAL: the weights to report on, then those of --beside."""
    import torch

    from saccade.datasets.check import warn_of_dropped_labels
    from saccade.evaluation.evaluate import answers_at, evaluate

    if out is not None:
        if out.exists() and not out.is_dir():
            raise InputError(f"{out}: is a file; expected a folder to write to, or a new name")
        out.mkdir(parents=True, exist_ok=True)
    warn_of_dropped_labels(dataset)
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    processes = processes or (1 if on_gpu else os.cpu_count() or 1)
    folders = [None if out is None else out / "beside" / Path(one).stem if place else out for place, one in enumerate(several)]
    if len(set(folders)) < len(folders) and out is not None:
        raise InputError(f"--beside {' '.join(map(str, several[1:]))}: two have the same name; rename one, their answers are kept by it")
    with _bar(len(several) * len(conditions) * recorded_s(dataset)) as progress:
        found, *beside = (
            evaluate(one, dataset, conditions, out=folder, progress=progress, device=device, processes=processes, **options)
            for one, folder in zip(several, folders, strict=True)
        )
    tables = (rates_table(found, *beside), conditions_table(found, *beside), differences_table(found, *beside))
    print("\n\n".join([described(found, *beside), *(to_text(table) for table in tables if table is not None)]))
    if out is not None:
        shown = found.series[0].fastest.condition
        mistakes = worst_mistakes(answers_at(out, shown), protocol=protocol_of(found.protocol, dataset))
        false, missed = ([(mistake, picture(dataset, mistake)) for mistake in some] for some in mistakes)
        write_all(out, found, Gallery(shown, false, missed), beside)
        print(f"\n{out / 'report.html'}: the report; beside it table.md, rates.png, evaluation.json")


def write_all(out: Path, evaluation: Evaluation, gallery: Gallery | None = None, beside: Sequence[Evaluation] = ()) -> None:
    """Write an evaluation into a folder in every form; of other weights only evaluation.json, in a folder each."""
    write_evaluation(evaluation, out / "evaluation.json")
    for other in beside:
        write_evaluation(other, out / "beside" / Path(other.weights).stem / "evaluation.json")
    with replacing(out / "table.md") as temporary:
        temporary.write_text(markdown(evaluation, *beside), encoding="utf-8")
    plot_rates(evaluation, out / "rates.png", beside)
    write_report(out / "report.html", evaluation, gallery, beside)


def recorded_s(dataset: Dataset) -> float:
    """Length of all recordings together, from the start of their first training window to the end of the last."""
    sampling = fixed_sampling(dataset) or Sampling()
    ends = (recording.ends_us(sampling) for recording in dataset.recordings)
    return sum((float(one[-1] - one[0]) + sampling.window_us) / 1e6 for one in ends if len(one))


def picture(dataset: Dataset, mistake: Mistake) -> UInt8[np.ndarray, "H W 3"]:
    """The events of one training window before the instant of a mistake, whatever the detector's frames were."""
    recording = next(recording for recording in dataset.recordings if recording.name == mistake.recording)
    sampling = fixed_sampling(dataset) or Sampling(rate_hz=PICTURE_RATE_HZ)
    ends_us = recording.ends_us(sampling)
    nearest = int(np.abs(ends_us - mistake.instant_us).argmin())
    return colours(recording.frames(ends_us[nearest : nearest + 1], sampling)[0])


@contextmanager
def _bar(seconds: float) -> Iterator[Callable[[str, float], None]]:
    """Progress bar over the seconds of all recordings at all conditions; shows the current condition."""
    shape = "{desc} {percentage:3.0f}%|{bar}| {n:,.0f} of {total:,.0f} s of recording [{elapsed}<{remaining}]"
    with tqdm(total=seconds, desc="evaluating", bar_format=shape, leave=False, disable=None, dynamic_ncols=True) as bar:

        def progress(condition: str, done_s: float) -> None:
            bar.set_description_str(f"evaluating {condition}", refresh=False)
            bar.update(min(done_s, bar.total - bar.n))

        yield progress


def conditions_of(
    rates: Sequence[float],
    windows: Sequence[EvaluationWindow] = ("sliding",),
    steppings: Sequence[Stepping] = ("direct",),
    jitters: Sequence[float] = (0.0,),
    drops: Sequence[float] = (0.0,),
    resets: Sequence[int] = (0,),
    seed: int = 0,
    counts: Sequence[Counts] = ("held",),
    slowest: Sequence[float] = (0.0,),
) -> list[Condition]:
    """Every combination once, rates innermost; the seed is 0 without jitter and drop, so that equal conditions are one."""
    if not all((rates, windows, steppings, counts, slowest, jitters, drops, resets)):
        options = "--rates, --window, --stepping, --counts, --min-rate, --jitter, --drop, --reset-every"
        raise InputError(f"{options}: expected at least one value after each")
    combined = (
        Condition(
            rate_hz=rate,
            window=kind,
            stepping=step,
            counts="plain" if kind == "sliding" else how,  # as long as in training: the same
            min_rate_hz=low,
            jitter=jitter,
            drop=drop,
            reset_every=reset,
            seed=seed if jitter or drop else 0,
        )
        for kind, step, how, low, jitter, drop, reset, rate in product(windows, steppings, counts, slowest, jitters, drops, resets, rates)
    )
    return list(dict.fromkeys(combined))
