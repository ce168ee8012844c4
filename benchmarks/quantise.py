"""What int8 costs: mAP and CPU time of torch, ONNX and int8 in one run: `python -m benchmarks.quantise WEIGHTS DATA`.

The first RECORDINGS of a split of DATA, frame by frame at the training rate; the ranges of int8 come from a train split. Beside them what a
stream takes by itself, in float32.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from saccade.config import DetectorConfig
from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Dataset, LabelledRecording, Sampling
from saccade.detection.decode import decode_rows
from saccade.evaluation.result import Answer
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.passes import Pass, passes_of
from saccade.evaluation.run.store import nothing_found
from saccade.evaluation.run.timeline import Timeline, timeline
from saccade.evaluation.score.average_precision import average_precision
from saccade.export.graph import export_detector
from saccade.export.quantise import quantise_onnx
from saccade.export.runtime import Runtime, open_runtime
from saccade.representation.canvas import Canvas
from saccade.types import InputError
from saccade.weights.load import find_weights, load_detector

THRESHOLD = 0.001


def line_of(recording: LabelledRecording, config: DetectorConfig) -> tuple[Timeline, Pass]:
    condition = Condition(rate_hz=Sampling.of(config).rate_hz)
    line = timeline(recording, condition, config, label_rate_hz=condition.rate_hz, nearest=True)
    return line, passes_of(recording, line, condition, config.window_us)[0]


def answers(runtime: Runtime, recording: LabelledRecording) -> tuple[list[Answer], list[float]]:
    """What was said of every labelled instant, and the CPU seconds of every step."""
    line, one = line_of(recording, runtime.config)
    frames = one.phase.frames(recording, slice(None))
    canvas = Canvas.pad(recording.width, recording.height, runtime.config.backbone.multiple)
    state, found, took_s = runtime.initial_state(*frames.shape[-2:]), [], []
    for frame, end_us, dt in zip(frames, one.phase.ends_us, one.steps.dt, strict=True):
        started = time.process_time()
        rows, state = runtime.step(frame, state, float(dt))
        took_s.append(time.process_time() - started)
        found.append(decode_rows(rows[None], [end_us], canvas, threshold=THRESHOLD)[0])
    result = []
    for instant_us, frame in zip(line.instants_us.tolist(), line.frame.tolist(), strict=True):
        first, last = np.searchsorted(recording.labels.t, [instant_us, instant_us + 1])
        result.append(Answer(recording.name, instant_us, recording.labels[first:last], found[frame] if frame >= 0 else nothing_found()))
    return result, took_s


def report(name: str, runtime: Runtime, dataset: Dataset, recordings: int, size: int) -> None:
    parts = [answers(runtime, recording) for recording in list(dataset.recordings)[:recordings]]
    every = [answer for part, _ in parts for answer in part]
    scores = average_precision([answer.labels for answer in every], [answer.detections for answer in every], dataset.classes)
    step_ms = 1000 * float(np.median([second for _, took_s in parts for second in took_s]))
    print(f"{name:<16} mAP {scores.mAP:5.2f}  AP50 {scores.ap50:5.2f}  {step_ms:6.2f} CPU ms a step  {size / 1e6:5.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", nargs="?", help="a weights file, or a name such as nano")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--recordings", type=int, default=2)
    parser.add_argument("--split", default="val", help="that is scored")
    parser.add_argument("--calibration", type=int, default=4, help="recordings of the train split")
    parser.add_argument("--train", type=Path, help="folder of the train split; DATA if not given")
    arguments = parser.parse_args()
    if arguments.data is None:
        print("quantise: needs trained weights and their data set: python -m benchmarks.quantise WEIGHTS DATA")
        return
    weights = find_weights(arguments.weights)
    detector = load_detector(weights)
    dataset, training = open_dataset(arguments.data, arguments.split), open_dataset(arguments.train or arguments.data, "train")
    clips = [
        line_of(recording, detector.config)[1].phase.frames(recording, slice(0, 16))
        for recording in list(training.recordings)[: arguments.calibration]
    ]
    frames = np.concatenate(clips)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        export_detector(detector, plain, height=frames.shape[-2], width=frames.shape[-1])
        quantise_onnx(plain, small, frames)
        for runtime in ("torch", "auto"):
            report(runtime, open_runtime(detector, runtime, threads=1), dataset, arguments.recordings, weights.stat().st_size)  # type: ignore[arg-type]
        for path in (plain, small):
            for runtime in ("onnxruntime", "openvino"):
                try:
                    opened = open_runtime(path, runtime, threads=1)  # type: ignore[arg-type]
                except InputError as error:
                    print(error)
                    continue
                report(f"{path.stem} {runtime}", opened, dataset, arguments.recordings, path.stat().st_size)


if __name__ == "__main__":
    main()
