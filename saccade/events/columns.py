"""Which column of a text or npz file is t, x, y, p, and the unit of time: from options and names, or inferred from a sample of values."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import numpy as np

from saccade.types import InputError

ROLES = "txyp"
SAMPLE = 1 << 12  # rows from which columns and unit are inferred
SKIP = "_"
MICROSECONDS_EXPONENT = {"us": 0, "ns": -3, "ms": 3, "s": 6}  # one unit = 10^exponent microseconds
LATEST_US = 10**17  # 3,170 years: a later time means a wrong unit, and an earlier one fits 18 decimal digits

POLARITIES = "0 and 1, -1 and 1, or true and false, one of these pairs in a file"
MEND_POLARITY = "write the polarities as 0 and 1, and leave out events that have none"

NAMES = {
    "t": {"t", "ts", "time", "times", "timestamp", "timestamps"},
    "x": {"x", "xs"},
    "y": {"y", "ys"},
    "p": {"p", "ps", "pol", "polarity", "polarities"},
}
UNIT_NAMES = {
    "us": {"us", "µs", "μs", "usec", "microsecond", "microseconds"},
    "ns": {"ns", "nsec", "nanosecond", "nanoseconds"},
    "ms": {"ms", "msec", "millisecond", "milliseconds"},
    "s": {"s", "sec", "secs", "second", "seconds"},
}


def parse_columns(option: str) -> tuple[str, ...]:
    """Parse the option columns="t x y p": any order, separated by spaces or commas, _ for a column to skip."""
    columns = tuple(re.split(r"[\s,]+", option.strip().strip(",")))
    if sorted(column for column in columns if column != SKIP) != sorted(ROLES):
        raise InputError(
            f"columns={option!r}: expected each of t, x, y, p once, and _ for every column to skip, as in 't x y p' or 'x y _ p t'"
        )
    return columns


def check_unit(option: str) -> str:
    if option not in MICROSECONDS_EXPONENT:
        raise InputError(f"time_unit={option!r}: expected one of {', '.join(MICROSECONDS_EXPONENT)}")
    return option


def role_of(name: str) -> tuple[str, str | None]:
    """(t, x, y, p or _; unit of time or None) of a column's name, such as "timestamp_us", "t [ns]", "Polarity"."""
    words = [word for word in re.split(r"[\s_\[\]()/]+", name.strip().strip("\"'").lower()) if word]
    for role, names in NAMES.items():
        if words and words[0] in names:
            if len(words) == 1:
                return role, None
            unit = next((unit for unit, spellings in UNIT_NAMES.items() if words[1] in spellings), None)
            if role == "t" and len(words) == 2 and unit:
                return role, unit
    return SKIP, None


def roles_of(names: Sequence[str]) -> tuple[tuple[str, ...], str | None] | None:
    """Columns and unit of time of a header line; None unless it names each of t, x, y, p exactly once."""
    roles = [role_of(name) for name in names]
    columns = tuple(role for role, _ in roles)
    if sorted(role for role in columns if role != SKIP) != sorted(ROLES):
        return None
    return columns, next((unit for _, unit in roles if unit), None)


def infer_columns(sample: Sequence[Sequence[Decimal]], where: str) -> tuple[tuple[str, ...], str]:
    """(order of four unnamed columns, note), inferred from a sample of their values; InputError unless only one order is possible.

    p is the column with both 0 and 1 (or -1 and 1) and nothing else; t the one with fractions or values that no coordinate has, else the
    one that never decreases; of the other two x comes first, as in every text format we know of.
    """
    advice = "state it with columns, for example columns='t x y p'"
    if len(sample) != 4:
        raise InputError(f"{where}: {len(sample)} columns without names; {advice}, with _ for each column to skip")
    distinct = [set(column) for column in sample]
    polarity = [i for i in range(4) if distinct[i] in ({0, 1}, {-1, 1})]
    if len(polarity) != 1:
        found = "no column holds both polarities" if not polarity else f"columns {_list(polarity)} hold only two polarities"
        raise InputError(f"{where}: which column is p can't be told from the data ({found}); {advice}")
    others = [i for i in range(4) if i not in polarity]
    time = [i for i in others if any(not 0 <= value <= 0xFFFF or value != int(value) for value in sample[i])]
    if not time:
        time = [i for i in others if _never_decreases(sample[i]) and len(distinct[i]) > 1]
    if len(time) != 1:
        found = "no column never decreases" if not time else f"columns {_list(time)} could be"
        raise InputError(f"{where}: which column is t can't be told from the data ({found}); {advice}")
    order = dict(zip([i for i in others if i not in time], "xy", strict=True)) | {polarity[0]: "p", time[0]: "t"}
    text = " ".join(order[i] for i in range(4))
    return tuple(text.split()), f"the columns have no names; by their values they are taken for '{text}' (state columns='{text}')"


def infer_unit(sample: Sequence[Decimal], where: str) -> tuple[str, str]:
    """(unit of time, note): more than three decimals mean seconds, whole numbers microseconds; InputError if it is ambiguous."""
    advice = "state it with time_unit, one of us, ns, ms, s"
    fractions = [value for value in sample if value != int(value)]
    if any(value * 1000 != int(value * 1000) for value in fractions):
        return "s", _unit_note("s", "decimals of more than three digits")
    if fractions:
        raise InputError(f"{where}: times have at most three decimals, so they may be seconds or milliseconds; {advice}")
    largest = max((abs(value) for value in sample), default=Decimal(0))
    if largest >= LATEST_US:
        return "ns", _unit_note("ns", "whole numbers that as microseconds would be thousands of years")
    if len(set(sample)) >= 16 and all(value % 1000 == 0 for value in sample):
        raise InputError(f"{where}: all times are multiples of 1000, so they may be nanoseconds or coarse microseconds; {advice}")
    return "us", _unit_note("us", "whole numbers")


def _unit_note(unit: str, found: str) -> str:
    return f"the unit of time isn't stated; {found} are taken for '{unit}' (state time_unit='{unit}')"


def _never_decreases(values: Sequence[Decimal]) -> bool:
    return all(a <= b for a, b in pairwise(values))


def _list(columns: Sequence[int]) -> str:
    return " and ".join(str(i + 1) for i in columns)


class PolarityRule:
    """Stored polarities of one file -> bool: bool, 0 and 1, or -1 and 1; anything else is refused, NaN and a mixture of both pairs too."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._saw_zero = self._saw_minus = False

    def to_bool(self, values: np.ndarray, first: int) -> np.ndarray:
        """FIRST: number of the first event, for the message."""
        if values.dtype == np.bool_:
            return values
        if values.dtype == np.uint8 and (len(values) == 0 or values.max() <= 1):  # most files: no copy
            return values.view(np.bool_)
        brighter, zero, minus = values == 1, values == 0, values == -1
        wrong = ~(brighter | zero | minus)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InputError(f"{self._where}: p of event {first + i} is {values[i]}; expected {POLARITIES}; {MEND_POLARITY}")
        self._saw_zero |= bool(zero.any())
        self._saw_minus |= bool(minus.any())
        if self._saw_zero and self._saw_minus:
            raise InputError(f"{self._where}: polarity is -1, 0 and 1; expected {POLARITIES}; {MEND_POLARITY}")
        return brighter
