"""`saccade demo`: simulate streets, detect at two rates with the shipped weights and the LSTM baseline, write a video and a report."""

import shlex
from pathlib import Path

from saccade.commands.detect import detect
from saccade.commands.evaluate import evaluate
from saccade.commands.options import RateOption
from saccade.commands.simulate import simulate
from saccade.datasets.open import open_dataset
from saccade.machine import check_extra
from saccade.types import InputError

OURS, BASELINE = "nano", "rvt-nano"
TRAINING_HZ = 20.0
SHOWN_HZ = 50.0  # pictures per second of the video: slow motion is chosen so that every frame of a high rate is shown


def demo(*, seed: int = 7, rate_hz: RateOption = 200.0, recordings: int = 4, seconds: float = 6.0, out: Path = Path("demo")) -> None:
    """See it work, in minutes: simulated streets that no training has seen, detected at 20 Hz and at --rate by weights trained at 20 Hz.

    Writes OUT/detections.mp4 (boxes and tracks in slow motion), OUT/report.html and OUT/rates.png (scores of nano, gated S5, and of
    rvt-nano, an LSTM that was trained on drawn streets alone and for half as many steps). Every step is a command of saccade and is
    printed, so that it can be repeated with other numbers.

    Args:
        seed: Random seed: of the simulated streets; the weights were trained on those of seed 0.
        rate_hz: Frames per second of event time, beside the 20 Hz of the training; 1 to 1000.
        recordings: Number of streets to simulate and score.
        seconds: Length of each street.
        out: Folder to write to.
    """
    if seed < 1:
        raise InputError(f"--seed {seed}: expected 1 or more; the shipped weights have seen the streets of seed 0")
    if not 1 <= rate_hz <= 1000:
        raise InputError(f"--rate {rate_hz:g}: expected 1 to 1000")
    check_extra("the demo's video", "av", "video")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: can't be made a folder ({error.strerror}); choose another with --out") from error
    streets = out / f"unseen-{seed}-{recordings}x{seconds:g}s"  # what is there already isn't simulated again
    _say("simulate", streets, "--recordings", recordings, "--seconds", f"{seconds:g}", "--seed", seed, "--split", "test")
    simulate(streets, recordings=recordings, seconds=seconds, seed=seed, split="test")

    street = max(open_dataset(streets, "test").recordings, key=lambda recording: len(recording.labels)).name  # the one with most labels
    recording, video = streets / "test" / f"{street}.h5", out / "detections.mp4"
    slow = max(1.0, rate_hz / SHOWN_HZ)
    _say("detect", OURS, recording, "--rate", f"{rate_hz:g}", "--slow", f"{slow:g}", "--out", video, "--overwrite")
    detect(OURS, recording, rate_hz=rate_hz, slow=slow, out=(video,), overwrite=True)

    rates = tuple(sorted({TRAINING_HZ, rate_hz}))
    options = ["--rates", *(f"{rate:g}" for rate in rates), "--beside", BASELINE, "--out", out]
    _say("evaluate", OURS, streets, *options)
    evaluate(OURS, streets, rates=rates, beside=(BASELINE,), out=out)
    print(
        f"\n{video}: events, boxes and tracks at {rate_hz:g} Hz, {slow:g} times slower"
        f"\n{out / 'report.html'}: all scores, and the worst mistakes as pictures"
        "\n\nTry next (after make demo, saccade is .venv/bin/saccade):"
        f"\n  saccade demo --rate 500 --seed {seed + 1}              another street, another rate"
        f"\n  saccade detect {OURS} YOUR_RECORDING --rate 200   .dat .raw .h5 .aedat4 .bag .mcap .npz .csv, any sensor"
        "\n  saccade train --help                            weights of your own"
    )


def _say(*words: object) -> None:
    print(f"\n$ saccade {shlex.join(map(str, words))}", flush=True)
