"""An evaluation survives its file, wrong files are refused in words, and drop and retention are the paper's."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.evaluation.result import Cost, Evaluation, Part, Result, from_json, read_evaluation, to_json, write_evaluation
from saccade.types import InputError
from tests.evaluation.samples import drawn_around, evaluation, result, scores


def same(one: Any, two: Any) -> bool:
    """Equal, with NaN equal to NaN."""
    if dataclasses.is_dataclass(one):
        return type(one) is type(two) and all(same(getattr(one, f.name), getattr(two, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, tuple):
        return isinstance(two, tuple) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    return one == two or (isinstance(one, float) and math.isnan(one) and math.isnan(two))


def test_an_evaluation_survives_its_file(tmp_path: Path) -> None:
    whole = evaluation()
    write_evaluation(whole, tmp_path / "evaluation.json")
    assert read_evaluation(tmp_path / "evaluation.json") == whole


any_float = st.floats(allow_nan=True, allow_infinity=True)


@given(st.text(), any_float, any_float, st.none() | any_float, st.lists(any_float, max_size=4))
def test_nan_none_and_any_name_survive_as_json_that_all_parsers_read(
    name: str, mAP: float, low: float, step_ms: float | None, curve: list[float]
) -> None:
    one = dataclasses.replace(
        result(mAP),
        scores=scores(mAP, math.nan, classes={name: low}),
        cost=Cost(3, low, 1.0, step_ms),
        by_still_s=(Part(low, math.inf, mAP, math.nan, 0),),
        curves={name: tuple(curve)},
    )
    whole = evaluation(weights=name, classes=(name,), results=(one, dataclasses.replace(one, streaming=one.scores)))
    text = to_json(whole)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} isn't JSON"))
    assert same(from_json(text), whole)


def test_files_without_intervals_and_ghosts_are_read_and_have_none() -> None:
    """Those of earlier versions."""
    content = json.loads(to_json(evaluation()))
    for later in ("intervals", "names"):
        del content[later]
    for one in content["results"]:
        del one["draws"], one["ghosts"]
    read = from_json(json.dumps(content))
    assert same(read, evaluation())
    assert all(map(math.isnan, (*read.results[0].interval("mAP"), *read.series[0].mean_drop_interval, read.results[0].ghosts.share)))


def test_intervals_of_differences_are_paired() -> None:
    """Draws that move together, as those of the same recordings do, leave a difference that is sure though the scores aren't."""
    slow, fast = (drawn_around(result(mAP, rate_hz=rate)) for mAP, rate in ((40.0, 20), (37.0, 200)))
    (series,) = evaluation(results=(slow, fast)).series
    low, high = fast.interval("mAP")
    assert (low, high) == (pytest.approx(35, abs=0.1), pytest.approx(39, abs=0.1))
    assert fast.gain(slow) == (-3, pytest.approx((-3, -3), abs=0.02))
    assert series.mean_drop_interval == pytest.approx((3, 3), abs=0.02)
    assert math.isnan(fast.gain(result(40.0))[1].low)  # without draws of the other


def test_other_readers_find_the_intervals_in_plain_numbers() -> None:
    whole = evaluation(results=(drawn_around(result(40.0)), drawn_around(result(37.0, rate_hz=200))), names=("a", "b"))
    (said,) = json.loads(to_json(whole))["intervals"]
    assert said["series"] == "sliding, direct"
    assert said["rates"]["200 Hz"]["mAP"] == pytest.approx([35, 39], abs=0.1)
    assert said["rates"]["200 Hz"]["mAP less training rate"] == pytest.approx([-3, -3], abs=0.02)
    assert same(from_json(to_json(whole)), whole)


def changed(change: Any) -> str:
    content = json.loads(to_json(evaluation()))
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "format"),
        ('{"format": "something else"}', "format"),
        (changed(lambda c: c.pop("results")), "results unknown or missing"),
        (changed(lambda c: c.update(colour="red")), "colour unknown"),
        (changed(lambda c: c["results"][0]["scores"].update(mAP="high")), r"results\[0\].scores.mAP: 'high'; expected float"),
        (changed(lambda c: c["results"][0]["scores"].update(mAP=None)), r"results\[0\].scores.mAP"),
        (changed(lambda c: c["results"][2]["condition"].update(rate_hz=-1)), "from 1 to 1000"),
        (changed(lambda c: c["results"][2]["condition"].update(window="round")), "window"),
        (changed(lambda c: c["results"][2].update(cost=7)), "expected frames, seconds"),
        (changed(lambda c: c.update(results={})), "results"),
        (changed(lambda c: c["results"][0].update(draws={"mAP": "37.2 36.9"})), r"results\[0\]: draws: .* base64"),
    ],
)
def test_wrong_files_are_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        from_json(text, "old.json")
    assert str(error.value).startswith("old.json")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_evaluation(tmp_path / "evaluation.json")


PAPER = {  # table 2: mAP at 20, 40, 80, 100, 200 Hz, and the drop it prints
    "RVT, Gen1": ((47.16, 35.13, 21.98, 18.61, 8.35), 26.14),
    "RVT, 1 Mpx": ((47.40, 42.51, 33.20, 30.29, 18.15), 16.36),
    "S5, Gen1": ((47.71, 46.44, 45.08, 42.49, 39.84), 4.25),
    "S5, 1 Mpx": ((47.80, 46.49, 46.11, 45.80, 39.70), 3.27),
    "GET, Gen1": ((47.90, 34.15, 19.97, 15.13, 5.35), 29.25),
    "GET, 1 Mpx": ((48.40, 40.51, 30.30, 28.11, 15.44), 19.81),
}


def of_rates(values: dict[float, float], **changes: Any) -> Evaluation:
    results: tuple[Result, ...] = tuple(result(mAP, rate_hz=rate) for rate, mAP in values.items())
    return evaluation(results=results, **changes)


@pytest.mark.parametrize("name", PAPER)
def test_the_mean_drop_is_the_papers(name: str) -> None:
    values, printed = PAPER[name]
    (series,) = of_rates(dict(zip((20, 40, 80, 100, 200), values, strict=True))).series
    assert series.mean_drop == pytest.approx(printed, abs=0.0051)
    assert series.retention == pytest.approx(100 * values[-1] / values[0])


def test_slower_rates_are_no_drop() -> None:
    (with_slower,) = of_rates({5: 10, 20: 40, 200: 30}).series
    assert with_slower.mean_drop == 10
    assert with_slower.retention == 75


@pytest.mark.parametrize("values", [{20: 40}, {40: 30, 200: 20}, {5: 10, 20: 40}])
def test_without_something_to_compare_there_is_no_drop(values: dict[float, float]) -> None:
    (series,) = of_rates(values).series
    assert math.isnan(series.mean_drop)
    assert math.isnan(series.retention)


def test_of_a_score_that_is_shown_as_0_nothing_is_kept() -> None:
    (series,) = of_rates({20: 0.004, 200: 0.014}).series
    assert math.isnan(series.retention)
    assert not math.isnan(series.mean_drop)


def test_the_training_rate_is_what_is_compared_with() -> None:
    (series,) = of_rates({20: 50, 40: 40, 80: 30}, training_rate_hz=40.0).series
    assert (series.mean_drop, series.retention) == (10, 75)


def test_results_that_differ_in_more_than_their_rate_are_other_series() -> None:
    changes = [{}, {"window": "disjoint"}, {"stepping": "interleaved"}, {"jitter": 0.3}, {"drop": 0.2}, {"reset_every": 21}]
    results = [result(30.0, rate_hz=rate, **change) for rate in (200, 20) for change in changes]
    series = evaluation(results=tuple(results)).series
    assert [one.name for one in series] == [
        "sliding, direct", "disjoint, direct", "sliding, interleaved", "sliding, direct, jitter 0.3", "sliding, direct, drop 0.2",
        "sliding, direct, reset every 21",
    ]  # fmt: skip
    assert all([one.condition.rate_hz for one in each.results] == [20, 200] for each in series)
