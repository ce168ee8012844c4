"""DATA SETS + SETTINGS -> WEIGHTS: the training loop."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from saccade.config import DetectorConfig
from saccade.datasets.check import warn_of_dropped_labels
from saccade.datasets.classes import in_common
from saccade.datasets.loader import Batch, Loader
from saccade.datasets.open import check_halving
from saccade.datasets.raw_events import opened
from saccade.datasets.recording import Dataset, Sampling
from saccade.evaluation.result import Metrics
from saccade.evaluation.validate import validate
from saccade.files import explain_full_disk, only_writer, replacing
from saccade.machine import keep_freed_memory
from saccade.pool import Stopped, stop_signals
from saccade.training.checkpoint import MovingAverage, TrainingRun, resume, save_checkpoint
from saccade.training.log import METRICS, Log, memory_mb, plot_losses
from saccade.training.objective import Learned, learn
from saccade.training.processes import Processes, joined
from saccade.training.settings import TrainingSettings, average_decay, learning_rate
from saccade.training.shared import share_batch_norms, sharing_gradients
from saccade.training.start import build_detector, check_half_precision, choose_tf32
from saccade.types import InputError
from saccade.weights.load import save_detector

RESUMES = "make room; the same command goes on from the last checkpoint"
log = logging.getLogger("saccade")


def fit(
    training: Dataset, validation: Dataset | None, out: Path, settings: TrainingSettings, config: DetectorConfig | None = None
) -> Metrics | None:
    """Train, from the last checkpoint in OUT if there is one, and write there final.safetensors, best.safetensors, metrics, a plot.

        fit(open_dataset("gen1", "train"), open_dataset("gen1", "val"), Path("run"), presets["gen1"]())

    CONFIG: the detector, where `settings.model` is neither a preset nor a file.
    """
    with joined(settings.device) as processes, only_writer(out) if processes.rank == 0 else nullcontext(), explain_full_disk(out, RESUMES):
        if settings.batch // processes.world < settings.accumulation:
            raise InputError(
                f"training: batch={settings.batch} is too small for {processes.world} processes with accumulation={settings.accumulation}: "
                "each part needs a clip; use fewer processes or a larger batch"
            )
        if settings.precision == "bf16":
            check_half_precision(processes.device)
        torch.set_num_threads(settings.threads_of(processes.local_world))
        keep_freed_memory()
        detector = build_detector(settings, training, config).to(processes.device)
        choose_tf32(settings, detector.config, processes.device)
        for dataset in (training, validation) if validation else (training,):
            check_halving(dataset, detector.config.halved)
        for note in in_common(detector.config.classes, validation, "the training").notes if validation else ():
            log.warning("%s", note)
        optimiser = torch.optim.AdamW(detector.parameters(), lr=settings.highest_rate, weight_decay=settings.weight_decay, fused=True)
        run = TrainingRun(detector, optimiser, MovingAverage(detector) if settings.average else None)
        if processes.world > 1:
            share_batch_norms(detector, together=settings.share_batch_norms)
        detector.backbone.recompute = settings.recompute
        if settings.compile:
            detector.backbone.compile()
        if processes.rank == 0:
            _open_all(training)
        with Loader(
            training,
            Sampling.of(detector.config),
            settings.lanes,
            batch=settings.batch,
            length=settings.length,
            multiple=detector.config.backbone.multiple,
            seed=settings.seed,
            mine=processes.lanes(settings.batch),
            workers=settings.workers,
            pin_memory=processes.device.type == "cuda",
        ) as loader:
            binding = {**settings.binding(), "config": asdict(detector.config), "lanes": loader.lanes.fingerprint()}
            resume(run, out, settings, processes, binding)
            if processes.rank == 0:
                warn_of_dropped_labels(training)
                with replacing(out / "settings.json") as temporary:
                    temporary.write_text(json.dumps({**asdict(settings), "config": asdict(detector.config)}, indent=2) + "\n")
            with sharing_gradients(detector, processes) as network:
                return _loop(run, network, loader.batches(run.step), validation, out, settings, processes, binding)


def _open_all(dataset: Dataset) -> None:
    """Read the labels of all recordings, which stay read: of thousands it takes a minute, so that something must be seen to go on."""
    for recording in tqdm(opened(dataset.recordings), "opening", len(dataset.recordings), unit=" recordings", leave=False, disable=None):
        recording.labels  # noqa: B018


def _loop(
    run: TrainingRun,
    network: nn.Module,
    batches: Iterator[Batch],
    validation: Dataset | None,
    out: Path,
    settings: TrainingSettings,
    processes: Processes,
    binding: dict[str, Any],
) -> Metrics | None:
    first = processes.rank == 0
    scores = None
    if run.step == settings.steps and (out / "final.safetensors").exists():
        log.warning("%s: finished already, after step %d; give another folder for a new training", out, run.step)
        return None
    with stop_signals() as asked, Log(out, settings, run.step) if first else nullcontext() as said:
        while run.step < settings.steps:
            started = time.perf_counter()
            try:
                batch = next(batches).to(processes.device)
            except RuntimeError as error:  # what torch's loader raises when a worker dies
                raise _reader_lost(error, run, bool(asked), out, settings, processes, binding) from error
            learned = _step(run, network, batch, settings, processes, bool(asked), out)
            if said is not None:
                said.step(run.step, _values(run, learned, batch, settings, processes, time.perf_counter() - started))
            finished = run.step == settings.steps
            checking = validation is not None and (finished or (settings.validate_every and run.step % settings.validate_every == 0))
            saving = finished or learned.stop or run.step % settings.checkpoint_every == 0
            if (checking or saving) and not settings.share_batch_norms:
                _share_statistics(run, processes)
            if validation is not None and checking:
                scores = _validate(run, validation, out, settings, processes, said)
            if saving:
                save_checkpoint(run, out, processes, binding)
            if learned.stop and not finished:
                raise Stopped(f"stopped after step {run.step} of {settings.steps}; the same command goes on from there")
        if validation is not None and settings.final_protocol != "none":
            scores = _score(run, validation, settings, processes, settings.final_protocol)
            if said is not None:
                said.validation(run.step, {"protocol": settings.final_protocol, "mAP": scores.mAP, "ap50": scores.ap50})
    if first:
        save_detector(run.result, out / "final.safetensors", training=_notes(run, settings, scores))
        plot_losses(out / METRICS, out / "loss.png")
    return scores


def _reader_lost(
    error: RuntimeError, run: TrainingRun, asked: bool, out: Path, settings: TrainingSettings, processes: Processes, binding: dict[str, Any]
) -> BaseException:
    """The error to raise when a worker died: a cluster that stops a job signals the workers, too; otherwise memory probably ran out."""
    if "worker" not in str(error):
        return error
    if processes.world == 1 and run.step:  # several processes can't agree on a checkpoint any more
        save_checkpoint(run, out, processes, binding)
    if asked:
        return Stopped(f"stopped after step {run.step} of {settings.steps}; the same command goes on")
    return InputError(
        f"training: a worker that reads ahead died after step {run.step} ({error}); is there enough memory? "
        "Try fewer workers or a smaller batch; the same command goes on from the last checkpoint"
    )


def _step(
    run: TrainingRun, network: nn.Module, batch: Batch, settings: TrainingSettings, processes: Processes, stop: bool, out: Path
) -> Learned:
    """One step of the optimiser; refuses to go on with numbers that aren't finite, before they reach the weights."""
    state = run.detector.initial_state(batch.frames) if run.state is None else run.state
    pending, state = learn(network, batch, state, settings, processes, stop)
    learned = pending.read()
    wrong = [name for name, value in learned.terms.items() if not isfinite(value)]
    if wrong or not learned.finite:
        raise InputError(_keep_for_inspection(run.step + 1, wrong or ["gradient"], batch, out, processes))
    rate = learning_rate(run.step, settings)
    if learned.labelled or settings.h2_weight:  # without labels, momentum alone would move the weights
        if settings.gradient_clip:
            nn.utils.clip_grad_value_(run.detector.parameters(), settings.gradient_clip)
        for group in run.optimiser.param_groups:
            group["lr"] = rate
        run.optimiser.step()
    if run.average is not None:
        run.average.update(run.detector, average_decay(run.step, settings))
    run.state, run.step = state, run.step + 1
    return learned


def _share_statistics(run: TrainingRun, processes: Processes) -> None:
    """Batch norms that each process had for itself: their mean over processes, so that all score and save the same weights."""
    for detector in {run.detector, run.result}:
        buffers = [buffer for buffer in detector.buffers() if buffer.is_floating_point()]
        for buffer, total in zip(buffers, processes.add(buffers), strict=True):
            buffer.copy_(total / processes.world)


def _keep_for_inspection(step: int, wrong: list[str], batch: Batch, out: Path, processes: Processes) -> str:
    path = out / f"nan_batch{processes.rank or ''}.pt"
    with replacing(path) as temporary:
        torch.save({**vars(batch), "step": step}, temporary)
    return (
        f"training: {', '.join(wrong)} of step {step} is NaN or infinite; the weights weren't touched. Its batch is in {path} "
        "(torch.load); look for broken frames or boxes there, or lower the learning rate, or use precision=fp32"
    )


def _values(
    run: TrainingRun, learned: Learned, batch: Batch, settings: TrainingSettings, processes: Processes, seconds: float
) -> dict[str, Any]:
    frames = batch.frames.shape[0] * settings.batch
    return {
        **learned.terms,
        "positives": learned.positives,
        "labelled": learned.labelled,
        "learning_rate": run.optimiser.param_groups[0]["lr"],
        "vanished": batch.vanished,
        "frames_per_s": frames / seconds,
        "memory_mb": memory_mb(processes.device),
    }


def _validate(
    run: TrainingRun, validation: Dataset, out: Path, settings: TrainingSettings, processes: Processes, said: Log | None
) -> Metrics:
    """Of the averaged weights; the best so far are kept."""
    scores = _score(run, validation, settings, processes)
    if said is not None:
        numbers = {name: value for name, value in asdict(scores).items() if not isinstance(value, dict)}
        said.validation(run.step, {**numbers, **{f"mAP_{name}": value for name, value in scores.classes.items()}})
        if scores.mAP > run.best:
            save_detector(run.result, out / "best.safetensors", training=_notes(run, settings, scores))
    run.best = max(run.best, scores.mAP) if scores.mAP == scores.mAP else run.best
    return scores


def _score(run: TrainingRun, validation: Dataset, settings: TrainingSettings, processes: Processes, protocol: str | None = None) -> Metrics:
    scores = validate(
        run.result.eval(),
        validation,
        protocol=protocol,
        recordings=settings.validate_recordings if protocol is None else 0,
        share=processes.gather,
        rank=processes.rank,
        world=processes.world,
    )
    run.detector.train()
    return scores


def _notes(run: TrainingRun, settings: TrainingSettings, scores: Metrics | None) -> dict[str, Any]:
    return {
        "steps": run.step,
        "settings": settings.binding(),
        **({"validation mAP": round(scores.mAP, 2), "validation AP50": round(scores.ap50, 2)} if scores else {}),
        **({"protocol": settings.final_protocol} if scores and run.step == settings.steps and settings.final_protocol != "none" else {}),
    }
