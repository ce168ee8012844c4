"""Events for tests: random ones, a hypothesis strategy, and the comparison of two sets."""

import numpy as np
from hypothesis import strategies as st

from saccade.types import Events


def random_events(n: int, *, width: int = 304, height: int = 240, span_us: int = 100_000, start_us: int = 0, seed: int = 0) -> Events:
    """Sorted in time, all over the sensor."""
    random = np.random.default_rng(seed)
    return Events(
        np.sort(random.integers(start_us, start_us + span_us, n)),
        random.integers(0, width, n).astype(np.uint16),
        random.integers(0, height, n).astype(np.uint16),
        random.integers(0, 2, n).astype(np.bool_),
        width,
        height,
    )


@st.composite
def events(draw, *, width: int = 40, height: int = 30, latest_us: int = 200_000, most: int = 200, ordered: bool = True) -> Events:
    """Few pixels and few times, so that equal times, bursts and duplicates are common."""
    start_us = draw(st.sampled_from([0, 1, 4095, 4096, 16_777_215, latest_us]))
    rows = draw(
        st.lists(
            st.tuples(
                st.one_of(st.integers(0, 20), st.integers(0, latest_us)),
                st.integers(0, width - 1),
                st.integers(0, height - 1),
                st.booleans(),
            ),
            max_size=most,
        )
    )
    if ordered:
        rows.sort(key=lambda row: row[0])
    t, x, y, p = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Events(np.array(t, np.int64) + start_us, np.array(x, np.uint16), np.array(y, np.uint16), np.array(p, np.bool_), width, height)


def assert_equal(got: Events, expected: Events) -> None:
    assert (got.width, got.height) == (expected.width, expected.height)
    for name in "txyp":
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)


def collect(reader) -> Events:
    parts = list(reader)
    return Events.join(parts) if parts else Events.empty(reader.width, reader.height)
