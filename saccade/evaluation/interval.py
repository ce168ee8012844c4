"""DRAWS -> 95 % INTERVAL, and draws as short text for JSON: a score of recordings drawn anew a thousand times, in percent."""

import base64
import binascii
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from saccade.files import NAN
from saccade.types import InputError

Drawn = Float64[np.ndarray, "draws"]  # NaN where a draw has nothing to count; no draws at all = no interval is known

INSIDE = (2.5, 97.5)  # percentiles
_NOTHING = np.iinfo(np.uint16).max  # stands for NaN


class Interval(NamedTuple):
    low: float
    high: float


UNKNOWN = Interval(NAN, NAN)


def interval_of(drawn: Drawn) -> Interval:
    """Of one score, or of the difference of two, draw by draw."""
    known = drawn[~np.isnan(drawn)]
    return Interval(*np.percentile(known, INSIDE).tolist()) if len(known) else UNKNOWN


def packed(drawn: Drawn) -> str:
    """Hundredths of a percent, two bytes each, as base64: a thousand draws on one line of JSON, which a list would make a thousand."""
    hundredths = np.where(np.isnan(drawn), _NOTHING, np.rint(100 * np.nan_to_num(drawn)))
    return base64.b64encode(hundredths.astype("<u2").tobytes()).decode("ascii")


def unpacked(text: str) -> Drawn:
    try:
        hundredths = np.frombuffer(base64.b64decode(text, validate=True), "<u2")
    except (ValueError, binascii.Error) as error:
        raise InputError(f"draws: {text!r:.40} isn't base64 of two bytes each ({error}); was the file changed by hand?") from error
    return np.where(hundredths == _NOTHING, NAN, hundredths / 100)
