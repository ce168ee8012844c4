"""STEP -> LEARNING RATE, DECAY OF THE AVERAGE: functions of the step alone, so that a resumed run needs no state of a schedule."""

from saccade.training.settings import TrainingSettings


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """One cycle: straight up to the highest rate within the warm-up, straight down to the end (the paper's schedule)."""
    highest = settings.highest_rate
    start, end = highest / settings.start_division, highest / settings.end_division
    top = max(settings.warmup * settings.steps - 1, 0.0)  # the step at which torch's OneCycleLR has its highest rate
    last = max(settings.steps - 1.0, top)
    if step < top:
        return start + (highest - start) * step / top
    return highest + (end - highest) * ((step - top) / (last - top) if last > top else 0.0)


def average_decay(step: int, settings: TrainingSettings) -> float:
    """Rises with the number of steps: an average over more than a tenth of the training so far would remember its beginning."""
    return min(settings.average, (1 + step) / (10 + step))
