"""RECORDING + LABELS -> FRAMES: stand-in until branch datasets is merged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Int64, UInt8

from saccade.types import Labels


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a recording becomes frames."""

    rate_hz: float = 20.0
    kind: Literal["sliding", "disjoint"] = "sliding"
    window_us: int = 50_000
    bins: int = 10
    histogram: Literal["exact", "published"] = "exact"


class LabelledRecording(Protocol):
    """Events with labels."""

    name: str
    width: int
    height: int
    labels: Labels

    def ends_us(self, sampling: Sampling) -> Int64[np.ndarray, "n"]: ...

    def frames(self, ends_us: Int64[np.ndarray, "n"], sampling: Sampling) -> UInt8[np.ndarray, "n channels height width"]: ...

    def labels_at(self, end_us: int, tolerance_us: int) -> Labels | None: ...


@dataclass(frozen=True)
class Dataset:
    """Recordings of one split."""

    name: str
    split: str
    classes: tuple[str, ...]
    recordings: Sequence[LabelledRecording]
