"""Tables say what the values say, in every form, and the plot needs nothing but them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from saccade.evaluation.result import Evaluation, Ghosts
from saccade.evaluation.show.charts import plot_rates
from saccade.evaluation.show.table import (
    NOTHING,
    conditions_table,
    cost_table,
    differences_table,
    markdown,
    rates_table,
    significant,
    to_markdown,
    to_text,
)
from saccade.types import InputError
from tests.evaluation.samples import RATES, drawn_around, evaluation, result


def test_a_row_per_series_with_every_rate_the_drop_and_the_hidden() -> None:
    table = rates_table(evaluation())
    assert table.header == (
        "window, stepping", "20 Hz", "40 Hz", "80 Hz", "100 Hz", "200 Hz", "mean drop", "retention", "hidden, 20 Hz", "hidden, 200 Hz",
    )  # fmt: skip
    assert table.rows[2] == ("disjoint, direct", "31.2", "27.4", "20.1", "17.6", "9.3", "12.6", "29.8 %", "41.0", "11.1")
    assert len(table.rows) == 3


def test_a_rate_that_only_one_series_has_is_a_dash_in_the_others() -> None:
    both = evaluation(results=(result(30.0, rate_hz=20), result(20.0, rate_hz=500), result(25.0, rate_hz=20, stepping="interleaved")))
    first, second = rates_table(both).rows
    assert first[1:5] == ("30.0", "20.0", "10.0", "66.7 %")
    assert second[1:5] == ("25.0", NOTHING, NOTHING, NOTHING)


def test_other_weights_stand_beside_the_first_under_their_own_name() -> None:
    ours, baseline = evaluation(), evaluation(model="rvt-nano", results=(result(35.0), result(20.0, rate_hz=500)))
    table = rates_table(ours, baseline)
    assert "500 Hz" in table.header
    assert [row[0] for row in table.rows] == [f"{ours.model}: {series.name}" for series in ours.series] + ["rvt-nano: sliding, direct"]
    assert table.rows[-1][1:7] == ("35.0", NOTHING, NOTHING, NOTHING, NOTHING, "20.0")
    assert len(conditions_table(ours, baseline).rows) == len(ours.results) + 2


def test_what_cannot_be_counted_is_a_dash_never_nan() -> None:
    nan = float("nan")
    whole = evaluation(results=(result(nan, nan), result(nan, nan, rate_hz=200)))
    for table in (rates_table(whole), conditions_table(whole), cost_table(whole)):
        assert "nan" not in to_text(table).lower()
    assert conditions_table(whole).rows[0][2] == NOTHING


def test_a_row_per_condition() -> None:
    table = conditions_table(evaluation())
    assert len(table.rows) == 3 * len(RATES)
    row = dict(zip(table.header, table.rows[4], strict=True))
    assert (row["rate"], row["mAP"], row["AR"], row["hidden"], row["streaming AP"]) == ("200 Hz", "28.8", "37.4", "37.7", "25.8")


def with_draws(**changes: Any) -> Evaluation:
    results = (drawn_around(result(31.2, 41.0)), drawn_around(result(28.8, 37.7, rate_hz=200)))
    return evaluation(**({"results": results, "names": ("a", "b")} | changes))


def test_intervals_stand_in_every_cell_of_markdown_and_beside_map_on_a_terminal() -> None:
    whole = with_draws()
    assert rates_table(whole).rows[0][1:4] == ("31.2", "28.8", "2.4")
    (row,) = rates_table(whole, intervals=True).rows
    assert row[1:4] == ("31.2 [29.2, 33.2]", "28.8 [26.8, 30.8]", "2.4 [2.4, 2.4]")
    assert row[5:] == ("41.0 [39.0, 43.0]", "37.7 [35.7, 39.7]")
    shown = [
        dict(zip(table.header, table.rows[1], strict=True)) for table in (conditions_table(whole), conditions_table(whole, intervals=True))
    ]
    for one in shown:
        assert (one["mAP"], one["less training rate"]) == ("28.8 [26.8, 30.8]", "-2.4 [-2.4, -2.4]")
    assert [one["AP50"] for one in shown] == ["54.7", "54.7 [52.7, 56.7]"]
    assert "| 28.8 [26.8, 30.8] |" in markdown(whole)
    assert "by bootstrap over the 17 recordings" in markdown(whole)
    assert "need two recordings" in markdown(evaluation())


def test_other_weights_are_compared_draw_by_draw_on_the_same_recordings_only() -> None:
    ours, other = (
        with_draws(),
        with_draws(model="rvt-nano", results=(drawn_around(result(28.8, 17.7, rate_hz=200)), result(1.0, rate_hz=40))),
    )
    table = differences_table(ours, other)
    assert table is not None
    assert table.header[0] == f"less {ours.model}"
    assert table.rows == (("rvt-nano: sliding, direct", "200 Hz", "0.0 [0.0, 0.0]", "0.0 [0.0, 0.0]", "-20.0 [-20.0, -20.0]"),)
    assert differences_table(ours) is None
    assert differences_table(ours, with_draws(names=("a", "c"))) is None


def test_ghosts_and_what_is_seen_where_nothing_is() -> None:
    one = replace(result(30.0), ghosts=Ghosts(ended=40, share=12.5, median_s=0.0, p95_s=0.35, empty_box_s=1.5))
    table = conditions_table(evaluation(results=(one, result(29.0, rate_hz=40))))
    row, without = (dict(zip(table.header, cells, strict=True)) for cells in table.rows)
    assert [row[name] for name in ("ghosts, %", "median, s", "95 %, s", "empty, s/min")] == ["12.5", "0.00", "0.35", "1.5"]
    assert without["ghosts, %"] == NOTHING
    assert "ghosts, %" not in conditions_table(evaluation()).header  # nowhere known


@pytest.mark.parametrize(
    ("value", "said"), [(0.41, "0.410"), (1.0, "1.00"), (72.34, "72.3"), (99.96, "100"), (1234.5, "1,234"), (float("inf"), NOTHING)]
)
def test_three_digits_that_count(value: float, said: str) -> None:
    assert significant(value) == said


def test_no_drop_is_zero_not_minus_zero() -> None:
    assert rates_table(evaluation(results=(result(30.0), result(30.01, rate_hz=200)))).rows[0][3:5] == ("0.0", "100.0 %")


def test_numbers_are_aligned_to_the_right() -> None:
    lines = to_text(rates_table(evaluation())).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 5


def test_markdown_has_as_many_cells_in_every_row_whatever_the_names() -> None:
    whole = evaluation(weights="a|b\n<script>.safetensors", dataset="x_y*z")
    text = markdown(whole)
    assert "<script>" not in text.replace("\\<", "")
    assert "a\\|b \\<script\\>" in text
    for table in (rates_table(whole), conditions_table(whole)):
        lines = to_markdown(table).splitlines()
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
        assert set(lines[1]) <= set("|-: ")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("whole", [evaluation(weights="$odd_{name}.safetensors"), evaluation(results=(result(30.0, float("nan")),))])
def test_the_plot_is_written_whole(tmp_path: Path, suffix: str, whole: object) -> None:
    path = tmp_path / f"rates{suffix}"
    plot_rates(whole, path)  # type: ignore[arg-type]
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    if suffix == ".svg":
        words = "".join(ElementTree.parse(path).getroot().itertext())
        assert "synthetic, test (17 recordings), protocol saccade" in words
    else:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_other_suffixes_and_empty_evaluations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown suffix"):
        plot_rates(evaluation(), tmp_path / "rates.gif")
    with pytest.raises(InputError, match="without results"):
        plot_rates(evaluation(results=()), tmp_path / "rates.png")


def test_matplotlib_and_torch_wait_until_they_are_needed() -> None:
    code = (
        "import sys, saccade.evaluation.show.charts, saccade.evaluation.show.report, saccade.commands.evaluate; "
        "print([name for name in ('torch', 'matplotlib', 'faster_coco_eval') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
