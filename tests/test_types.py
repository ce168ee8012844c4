"""Events: one length, the right types, and a piece is a source like a recording."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.types import Events, InputError
from tests.make.events import assert_equal, random_events


def test_a_piece_is_a_source() -> None:
    source = random_events(1000)
    assert_equal(Events.join(list(source)), source)
    assert [len(window) for window in saccade.windows(source, 20, "disjoint")] == [
        len(w) for w in saccade.windows([source], 20, "disjoint")
    ]
    assert sum(frame.events for frame in saccade.frames(source, 20)) == 1000


def test_slices_share_memory_and_masks_select() -> None:
    source = random_events(100)
    assert np.shares_memory(source[10:20].t, source.t)
    assert_equal(source[source.p], source[np.flatnonzero(source.p)])


def test_join_refuses_parts_of_different_sensors() -> None:
    with pytest.raises(InputError, match="different sensors"):
        Events.join([random_events(1, width=10), random_events(1, width=20)])
    with pytest.raises(InputError, match="nothing to join"):
        Events.join([])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("np.zeros(3), u, u, b", "must be int64"),
        ("t, u.astype(int), u, b", "must be int64 .us., uint16, uint16, bool, got int64, int64, uint16, bool"),
        ("t, u[:2], u, b", "one length"),
        ("t.reshape(1, 3), u.reshape(1, 3), u.reshape(1, 3), b.reshape(1, 3)", "one length"),
    ],
)
def test_wrong_columns_are_refused(columns: str, message: str) -> None:
    """In a process without the shape checks of the tests, as users run it."""
    code = f"""
import numpy as np
from saccade.types import Events, InputError
t, u, b = np.zeros(3, np.int64), np.zeros(3, np.uint16), np.zeros(3, np.bool_)
try:
    Events({columns}, 4, 4)
except InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1], check=True)
    assert re.search(message, result.stdout), result.stdout
