"""What a detector had said by an instant that somebody labelled, beside what was there."""

from dataclasses import dataclass

from saccade.types import Detections, Labels


@dataclass(frozen=True, eq=False)
class Answer:
    """One scored instant of a recording."""

    recording: str
    instant_us: int
    labels: Labels  # of this instant, maybe none
    detections: Detections  # of the newest frame that ended by then; `time_us` says when
    late: Detections | None = None  # of the newest frame that was ready by then, computing included; None = nobody asked
    ignored: Labels | None = None  # objects that the data set's rules left out: finding one is neither right nor wrong; None = not known
