"""What a stream counts: nothing that went wrong, was late or was left out is silent."""

import math
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

FINEST_S = 1e-6
GROWTH = 1.01  # of a bucket's limits: a percentile is known to one per cent
BUCKETS = 2200  # up to nearly an hour


class Latencies:
    """Durations in buckets of one per cent: percentiles of any number of them in the same memory."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self.count = 0

    def add(self, seconds: float) -> None:
        bucket = int(math.log(max(seconds, FINEST_S) / FINEST_S) / math.log(GROWTH))
        self._counts[min(bucket, BUCKETS - 1)] += 1
        self.count += 1

    def percentile_ms(self, percent: float) -> float:
        """The least duration that so many per cent of all don't exceed; NaN before the first."""
        if not self.count:
            return math.nan
        rank = max(math.ceil(percent / 100 * self.count), 1)
        bucket = next(number for number, total in enumerate(accumulate(self._counts)) if total >= rank)
        return 1000 * FINEST_S * GROWTH ** (bucket + 0.5)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Of a stream since it began or was reset."""

    events: int = 0  # that arrived
    portions: int = 0
    windows: int = 0  # ends of the grid that passed
    steps: int = 0  # of the network; each gives one Detections
    merged_windows: int = 0  # that had no step of their own because steps took too long
    skipped_windows: int = 0  # that had none because little happened (adaptive rate)
    late_events: int = 0  # that came after their window was finished: in no frame
    outside_events: int = 0  # outside the sensor's area: in no frame
    unseen_events: int = 0  # that fell between two frames because steps were further apart than a window: in no frame
    dropped_events: int = 0  # that the full queue had no place for: in no frame
    lost_packets: int = 0  # that the network never delivered
    bad_portions: int = 0  # or packets, that were damaged and left out, with faults="skip"
    foreign_packets: int = 0  # of other senders than the one that is listened to: in no frame
    restarts: int = 0  # of time, after a jump, with faults="skip"
    latency_p50_ms: float = math.nan  # from the arrival of a window's last event to its detections
    latency_p95_ms: float = math.nan
    latency_p99_ms: float = math.nan

    def __str__(self) -> str:
        shown = {name: value for name, value in asdict(self).items() if value and not math.isnan(value)}
        return ", ".join(
            f"{name.replace('_', ' ')} {format(value, '.2f' if isinstance(value, float) else ',')}" for name, value in shown.items()
        )


class CountersUnderWay:
    """The counters of a running stream: `add(late_events=3)`; `snapshot` is the value that others see."""

    def __init__(self) -> None:
        self._numbers = {name: value for name, value in asdict(Counters()).items() if isinstance(value, int)}
        self.latencies = Latencies()

    def add(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self._numbers[name] += number

    def __getitem__(self, name: str) -> int:
        return self._numbers[name]

    def snapshot(self) -> Counters:
        p50, p95, p99 = (self.latencies.percentile_ms(percent) for percent in (50, 95, 99))
        return Counters(**self._numbers, latency_p50_ms=p50, latency_p95_ms=p95, latency_p99_ms=p99)

    def to_json(self) -> dict[str, Any]:
        """Without latencies: those of another process say nothing of this one."""
        return dict(self._numbers)

    def restore(self, numbers: dict[str, Any]) -> None:
        self._numbers.update({name: int(numbers[name]) for name in self._numbers if name in numbers})
