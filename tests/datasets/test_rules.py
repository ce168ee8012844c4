"""The official rules on real labels, counted here a second time in plain numpy; and how labels find their frames."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.datasets import rules
from saccade.datasets.labels import from_records, read_boxes
from saccade.datasets.recording import Clock, Sampling, ends_between, match
from saccade.datasets.rules import LabelRules, apply_rules
from saccade.types import InputError
from tests.datasets.make import DSEC_ORDER, ETRAM_ORDER, GEN1_ORDER, OLD_ORDER, labels_every, records


def cropped(array: np.ndarray, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Width and height of each box inside the sensor."""
    left, top = np.clip(array["x"], 0, width), np.clip(array["y"], 0, height)
    right = np.clip(array["x"].astype(float) + array["w"], 0, width)
    bottom = np.clip(array["y"].astype(float) + array["h"], 0, height)
    return right - left, bottom - top


def test_one_mpx_rules_on_real_labels(shared: Path) -> None:
    path = shared / "data/labels/1mpx_60s.npy"
    array = np.load(path)
    w, h = cropped(array, 1280, 720)
    used = np.isin(array["t"], np.unique(array["t"])[::6]) & (array["class_id"] < 3) & (w > 0) & (h > 0)  # 60 Hz -> 10 Hz
    training = used & (w >= 5) & (h >= 5) & (w <= 0.9 * 1280)
    evaluation = used & (w >= 20) & (h >= 20) & (np.hypot(w, h) >= 60) & (array["t"] > 500_000)
    got = {name: apply_rules(read_boxes(path), which, 1280, 720, 0.5) for name, which in
           (("training", rules.ONE_MPX_TRAINING), ("evaluation", rules.ONE_MPX_EVALUATION))}  # fmt: skip
    assert len(array) == 22_459
    assert len(got["training"].labels) == training.sum() == 2450
    assert len(got["evaluation"].labels) == evaluation.sum() == 2023
    for truth, kept in ((got["training"], training), (got["evaluation"], evaluation)):
        np.testing.assert_array_equal(np.bincount(truth.labels.classes), np.bincount(array["class_id"][kept]))
        assert len(truth.labels) + sum(truth.dropped.values()) == len(array), "every box is kept or counted under one reason"
        boxes = truth.labels.boxes
        assert truth.ignored is not None
        assert len(truth.ignored) == truth.dropped["too small"] + truth.dropped["too wide"] > 0
        assert set(truth.ignored.classes.tolist()) <= {0, 1, 2}
        assert np.isin(truth.ignored.t, truth.instants_us).all()
        assert boxes.min() >= 0
        assert boxes[:, 2].max() <= 640
        assert boxes[:, 3].max() <= 360
    assert len(got["training"].instants_us) == 600


def test_one_mpx_labels_lie_on_window_ends_though_their_clock_runs_slow(shared: Path) -> None:
    """59.94 Hz: a grid of exactly 50 ms would be 60 ms off after a minute."""
    truth = apply_rules(read_boxes(shared / "data/labels/1mpx_60s.npy"), rules.ONE_MPX_TRAINING, 1280, 720)
    assert truth.clock.stretch == Fraction(1001, 1000)
    for rate_hz in (20, 40, 200):
        grid = truth.clock.grid(rate_hz)
        ends = ends_between(grid, 0, 60 * rate_hz)
        found = match(truth.instants_us, ends, 500)
        assert not found.unused.any()
        assert np.abs(truth.instants_us - ends[found.instants >= 0]).max() <= 1


def test_etram_rules_on_real_labels(shared: Path) -> None:
    path = shared / "data/labels/etram_day_014.npy"
    array = np.load(path)
    w, h = cropped(array, 1280, 720)
    third = np.rint((array["t"] - array["t"].min()) / 33_333).astype(int) % 3 == 0  # 30 Hz -> 10 Hz
    kept = third & (w >= 20) & (h >= 20) & (np.hypot(w, h) >= 60) & (array["t"] > 500_000)
    labels = apply_rules(read_boxes(path), rules.ETRAM_EVALUATION, 1280, 720).labels
    assert len(labels) == kept.sum() == 365
    np.testing.assert_array_equal(np.sort(labels.tracks), np.sort(array["track_id"][kept]))
    assert [rules.ETRAM_CLASSES[i] for i in np.unique(labels.classes)] == ["pedestrian", "car"]
    np.testing.assert_array_equal(np.bincount(labels.classes), np.bincount(array["class_id"][kept]))


def test_gen1_rules_on_the_labels_of_an_rvt_tree(shared: Path) -> None:
    """They were filtered by the same rules when the tree was made: nothing more is dropped."""
    array = np.load(shared / "data/rvt_layout/labels_v2/labels.npz")["labels"]
    truth = apply_rules(from_records(array, "labels"), rules.GEN1_EVALUATION, 304, 240)
    assert len(truth.labels) == len(array) == 104
    np.testing.assert_array_equal(truth.labels.t, array["t"])


@pytest.mark.parametrize("order", [GEN1_ORDER, OLD_ORDER, ETRAM_ORDER, DSEC_ORDER])
def test_fields_are_found_by_name(order: str) -> None:
    raw = from_records(records([(5, 1, 2, 30, 40, 1, 9), (3, 0, 0, 10, 10, 0, 8)], order), "here")
    assert raw.t.tolist() == [3, 5]
    assert raw.boxes.tolist() == [[0, 0, 10, 10], [1, 2, 31, 42]]
    assert raw.classes.tolist() == [0, 1]
    assert raw.tracks.tolist() == [8, 9]


@pytest.mark.parametrize(
    ("box", "kept"),
    [
        ((10, 10, 10, 30), True),  # side 10 and diagonal 31.6
        ((10, 10, 9.9, 60), False),
        ((10, 10, 20, 22), False),  # diagonal 29.7
        ((-15, 10, 24, 100), False),  # 24 wide, but 9 of it inside: cropped first
        ((300, 10, 50, 50), False),
        ((320, 10, 50, 50), False),  # outside
        ((10, 10, 280, 50), False),  # wider than 0.9 of the sensor
    ],
)
def test_boxes_are_cropped_then_measured(box: tuple, kept: bool) -> None:
    raw = from_records(records([(600_000, *box, 0, 1)]), "here")
    truth = apply_rules(raw, rules.GEN1_TRAINING, 304, 240)
    assert (len(truth.labels) == 1) == kept
    assert truth.instants_us.tolist() == [600_000], "labelled and without objects isn't unlabelled"
    assert truth.at(600_000, 10) is not None
    assert truth.at(600_100, 10) is None


def test_the_first_half_second_counts_as_not_labelled() -> None:
    raw = from_records(records(labels_every(250_000, 4, first_us=250_000)), "here")
    truth = apply_rules(raw, rules.GEN1_EVALUATION, 304, 240)
    assert truth.instants_us.tolist() == [750_000, 1_000_000]
    assert truth.at(500_000, 1000) is None
    assert truth.clock.origin_us == 250_000


@pytest.mark.parametrize("used", [rules.GEN1_TRAINING, rules.ONE_MPX_TRAINING, rules.ETRAM_TRAINING])
def test_labels_of_the_first_half_second_are_trained_on_as_published(used: LabelRules) -> None:
    raw = from_records(records(labels_every(100_000, 8, first_us=100_000)), "here")
    assert apply_rules(raw, used, 1280, 720).instants_us.tolist() == [100_000 * number for number in range(1, 9)]


def test_repeated_boxes_are_counted_and_kept() -> None:
    raw = from_records(records([(1, 0, 0, 9, 9, 0, 1)] * 3 + [(1, 0, 0, 9, 9, 0, 2)]), "here")
    truth = apply_rules(raw, LabelRules(classes=("thing",)), 304, 240)
    assert (truth.duplicates, len(truth.labels)) == (2, 4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: a[["t", "x", "y", "w", "class_id"]], "no field h"),
        (lambda a: a["x"], "no field t or ts"),
        (lambda a: _with(a, "x", np.nan), "row 1"),
        (lambda a: _with(a, "h", -3), "negative"),
        (lambda a: _with(a, "t", 2**63), "beyond any recording"),
    ],
)
def test_wrong_label_files_are_refused(tmp_path: Path, change, text: str) -> None:
    np.save(tmp_path / "x_bbox.npy", change(records(labels_every(1000, 3))))
    with pytest.raises(InputError, match=text):
        read_boxes(tmp_path / "x_bbox.npy")


def _with(array: np.ndarray, name: str, value: float) -> np.ndarray:
    array[name][1] = value
    return array


def test_damaged_and_pickled_label_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x_bbox.npy"
    np.save(path, records(labels_every(1000, 30)))
    whole = path.read_bytes()
    for content in (b"", whole[:5], whole[:60], whole[:-9], b"text", whole[:20] + b"\xff" * 40 + whole[60:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="x_bbox"):
            read_boxes(path)
    np.save(path, np.array([{"t": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled"):
        read_boxes(path)


@given(
    st.lists(st.integers(0, 400), max_size=40, unique=True).map(sorted),
    st.integers(1, 60),
    st.integers(0, 60),
)
def test_match_is_the_rule_of_labels_at_and_uses_each_label_once(instants: list[int], step: int, origin: int) -> None:
    ends = np.arange(origin, 400, step)
    found = match(np.array(instants, np.int64), ends, step / 2)
    used = found.instants[found.instants >= 0]
    assert len(set(used.tolist())) == len(used)
    assert len(used) + found.unused.sum() == len(instants)
    for end, i in zip(ends.tolist(), found.instants.tolist(), strict=True):
        near = [t for t in instants if -(step // 2) < t - end <= step // 2]
        assert (instants[i] if i >= 0 else None) == min(near, key=lambda t: (abs(t - end), t), default=None)


def test_a_tolerance_that_would_use_a_label_twice_is_refused() -> None:
    with pytest.raises(InputError, match="half a step"):
        match(np.array([5]), np.array([0, 10, 20]), 6)


@pytest.mark.parametrize("rate_hz", [1, 2, 4, 20, 30])
def test_whole_label_rates_stretch_nothing(rate_hz: int) -> None:
    clock = Clock.of(1234 + np.arange(0, 60_000_000, 1_000_000 // rate_hz))
    assert clock == Clock(1234, Fraction(1))


def test_irregular_labels_stretch_nothing() -> None:
    times = np.unique(np.random.default_rng(0).integers(0, 10_000_000, 50))
    assert Clock.of(times) == Clock(int(times[0]))
    assert Clock.of(times[:1]) == Clock(int(times[0]))
    assert Clock.of(times[:0]) == Clock()


@pytest.mark.parametrize("wrong", [{"rate_hz": 0}, {"rate_hz": float("nan")}, {"bins": 0}, {"window_us": 5}])
def test_wrong_sampling_is_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match="sampling"):
        Sampling(**wrong)
