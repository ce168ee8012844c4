"""What a detector shows where there is nothing: `python -m examples.silence nano --minutes 60`.

Thirty sensors, drawn as those of the photographs are (`saccade.simulate.photo_scene.draw_sensor`), look at an even wall in constant light,
one after the other: all their events are shot noise, leaks, hot pixels and bursts. Counted is what `saccade detect` shows by default.
"""

import logging
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import tyro
from tqdm import tqdm

import saccade
from saccade.simulate.photo_scene import draw_sensor
from saccade.simulate.sensor import Sensor
from saccade.types import Events

SENSORS = 30
FIRST_SEED = 5_000_000  # of the sensors; those of data sets begin elsewhere
PICTURE_US = 50_000


def noise(seed: int, seconds: float, width: int, height: int) -> Iterator[Events]:
    """Events of a sensor that sees nothing, in portions."""
    sensor = Sensor(width, height, draw_sensor(seed), seed)
    light = np.random.default_rng(seed).uniform(0.05, 0.8)
    wall = np.full((height, width), light, np.float32)
    sensor.see(wall, 0)
    for end_us in range(PICTURE_US, round(seconds * 1e6) + 1, PICTURE_US):
        yield sensor.see(wall, end_us)


def main(
    weights: Annotated[str, tyro.conf.Positional], *, minutes: float = 60.0, rate: float = 20.0, size: tuple[int, int] = (346, 260)
) -> None:
    """Count boxes where there is nothing.

    Args:
        weights: A name or a weights file.
        minutes: Of all sensors together.
        rate: Answers a second.
        size: Of the sensors, width and height.
    """
    logging.getLogger("saccade").setLevel(logging.ERROR)  # it would say of most that there is little to see
    frames = boxes = filled = 0
    worst, stream = (0.0, 0), saccade.Stream(weights, rate)
    for seed in tqdm(range(FIRST_SEED, FIRST_SEED + SENSORS), unit=" sensors", disable=None):
        stream.reset()
        found = [len(answer) for answer in stream.run(noise(seed, 60 * minutes / SENSORS, *size))]
        frames, boxes, filled = frames + len(found), boxes + sum(found), filled + sum(map(bool, found))
        worst = max(worst, (sum(map(bool, found)) / max(len(found), 1), seed))
    share, seed = worst
    least = stream.runtime.config.least_score
    print(f"{weights}: {boxes:,} boxes in {filled:,} of {frames:,} frames of noise alone, at {rate:g} Hz and a score of {least:g}")
    if boxes:
        print(f"most of them before sensor {seed}: in {share:.1%} of its frames; {draw_sensor(seed)}")


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except saccade.InputError as error:
        raise SystemExit(f"silence: {error}") from None
