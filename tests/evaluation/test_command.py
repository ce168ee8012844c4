"""`saccade evaluate` as a user meets it: which conditions its options mean, what it writes, that it goes on, and how it refuses."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from saccade.commands.evaluate import conditions_of, evaluate, recorded_s
from saccade.datasets.open import open_dataset
from saccade.evaluation.result import read_evaluation
from saccade.evaluation.run.condition import Condition
from saccade.simulate.dataset import DatasetConfig, write_dataset
from saccade.types import InputError
from tests.training.make import tiny_config

ROOT = Path(__file__).parents[2]
FILES = {"evaluation.json", "table.md", "rates.png", "report.html"}


def test_every_combination_once_with_the_rates_innermost() -> None:
    found = conditions_of((20, 200), ("sliding", "disjoint", "sliding"), ("direct", "interleaved"))
    assert [one.name for one in found] == [
        f"{window}-{stepping}-{rate}Hz{counts}"
        for window, counts in (("sliding", ""), ("disjoint", "-held"))
        for stepping in ("direct", "interleaved")
        for rate in (20, 200)
    ]


def test_counts_are_another_condition_where_windows_are_short() -> None:
    found = conditions_of((40.0,), ("sliding", "disjoint"), counts=("plain", "held"))
    assert [condition.name for condition in found] == ["sliding-direct-40Hz", "disjoint-direct-40Hz", "disjoint-direct-40Hz-held"]


def test_constant_and_adaptive_rates_are_others() -> None:
    found = conditions_of((20.0, 200.0), slowest=(0.0, 5.0))
    assert [(one.min_rate_hz, one.rate_hz) for one in found] == [(0, 20), (0, 200), (5, 20), (5, 200)]


def test_chance_has_a_seed_only_where_there_is_chance() -> None:
    found = conditions_of((20.0,), jitters=(0.0, 0.3), drops=(0.0,), resets=(0, 21), seed=7)
    assert found == [
        Condition(rate_hz=20.0),
        Condition(rate_hz=20.0, reset_every=21),
        Condition(rate_hz=20.0, jitter=0.3, seed=7),
        Condition(rate_hz=20.0, jitter=0.3, reset_every=21, seed=7),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"windows": ()}, "at least one value"),
        ({"rates": ()}, "at least one value"),
        ({"rates": (20.0, 2000.0)}, "from 1 to 1000"),
        ({"jitters": (1.0,)}, "below 1"),
    ],
)
def test_what_means_no_condition_is_refused(change: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        conditions_of(**({"rates": (20.0,)} | change))


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate") / "streets"
    write_dataset(folder, DatasetConfig(recordings=10, seconds=0.6, width=48, height=40), processes=1)
    return folder


@pytest.fixture(scope="module")
def weights(streets: Path) -> Path:
    """Fresh ones whose objects are anywhere, so that there is something to score."""
    import torch

    from saccade.model.detector import Detector
    from saccade.weights.load import save_detector

    torch.manual_seed(0)
    detector = Detector(replace(tiny_config(), classes=open_dataset(streets, "test").classes))
    for scale in detector.head.scales:
        for layer in (scale.objectness, scale.classes):
            torch.nn.init.normal_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
    path = streets.parent / "tiny.safetensors"
    save_detector(detector, path)
    return path


def test_it_prints_the_table_writes_every_form_and_goes_on(
    streets: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "new" / "scores"

    def run() -> str:
        evaluate(weights, streets, rates=(20.0, 40.0), window=("sliding", "disjoint"), latency_ms=5.0, out=out, processes=1)
        return capsys.readouterr().out

    said = run()
    assert {path.name for path in out.iterdir() if path.is_file()} >= FILES
    assert not list(out.rglob("*.part*"))
    found = read_evaluation(out / "evaluation.json")
    assert [one.condition.name for one in found.results] == [
        "sliding-direct-20Hz", "sliding-direct-40Hz", "disjoint-direct-20Hz-held", "disjoint-direct-40Hz-held",
    ]  # fmt: skip
    assert found.recordings == 1
    assert found.results[0].scores == found.results[2].scores  # at the training rate both windows are one
    assert all(one.streaming is not None for one in found.results)
    assert "20 Hz  40 Hz  mean drop  retention" in said
    assert said.endswith(f"{out / 'report.html'}: the report; beside it table.md, rates.png, evaluation.json\n")
    assert run() == said  # the cost, too: nothing was computed again
    assert read_evaluation(out / "evaluation.json") == found


def test_other_weights_are_scored_beside_the_first(streets: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = weights.with_name("other.safetensors")
    other.write_bytes(weights.read_bytes())
    evaluate(weights, streets, rates=(20.0,), beside=(str(other),), out=tmp_path / "scores")
    assert capsys.readouterr().out.count("sliding, direct") == 5  # two tables, two weights, and their difference
    found, beside = (read_evaluation(tmp_path / "scores" / name) for name in ("evaluation.json", "beside/other/evaluation.json"))
    assert found.results[0].scores == beside.results[0].scores
    assert str(other) in (tmp_path / "scores/report.html").read_text()
    with pytest.raises(InputError, match="same name"):
        evaluate(weights, streets, rates=(20.0,), beside=(str(other), str(other)), out=tmp_path / "scores")


def test_without_out_the_table_is_only_printed(streets: Path, weights: Path, capsys: pytest.CaptureFixture) -> None:
    before = sorted(streets.parent.rglob("*"))
    evaluate(weights, streets, rates=(20.0,), split="train", recordings=1)
    assert "train (1 recording)" in capsys.readouterr().out
    assert sorted(streets.parent.rglob("*")) == before


def test_weights_go_by_name(streets: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("saccade.samples.FOLDER", weights.parent)
    evaluate(weights.stem, streets, rates=(20.0,), recordings=1, processes=1)
    assert weights.stem in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 0}, "--batch 0"),
        ({"recordings": -1}, "--recordings -1"),
        ({"label_rate": float("nan")}, "--label-rate nan"),
        ({"out": Path(__file__)}, "is a file; expected a folder"),
        ({"weights": Path("none.safetensors")}, r"none.safetensors: no such file"),
    ],
)
def test_wrong_options_are_refused(streets: Path, weights: Path, options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        evaluate(**({"weights": weights, "dataset": streets, "rates": (20.0,)} | options))


def test_the_length_of_a_data_set_is_that_of_its_recordings(streets: Path) -> None:
    assert recorded_s(open_dataset(streets, "all")) == pytest.approx(10 * 0.6, abs=10 * 0.06)


def test_the_help_says_which_option_sets_the_rate_and_values_are_taken_as_shown() -> None:
    command = [sys.executable, "-m", "saccade.cli", "evaluate"]
    text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "This alone sets the rate" in " ".join(text.replace("│", " ").split())
    asked = ["--rates", "20", "200", "--window", "sliding,round", "--latency-ms", "measured", "--reset-every", "0", "21"]
    refused = subprocess.run([*command, "w", "d", *asked], capture_output=True, text=True, cwd=ROOT)
    assert refused.returncode == 2
    assert "--window: 'round' is none of sliding, disjoint, shrunk" in refused.stderr


def test_the_data_set_is_opened_as_the_weights_were_trained(streets: Path, weights: Path, tmp_path: Path) -> None:
    """Published 1 Mpx weights know frames of odd pixels only; others of the same size would be a wrong input without a word."""
    from saccade.datasets.prepare import prepare
    from saccade.datasets.recording import Sampling
    from saccade.evaluation.evaluate import answers_at
    from saccade.evaluation.evaluate import evaluate as evaluate_opened
    from saccade.weights.load import load_detector, save_detector

    detector = load_detector(weights)
    detector.config = replace(detector.config, halved="published")
    save_detector(detector, tmp_path / "published.safetensors")
    evaluate(tmp_path / "published.safetensors", streets, rates=(20.0,), out=tmp_path / "out", processes=1)
    opened = open_dataset(streets, "test", halve="published")
    evaluate_opened(detector, opened, [Condition()], out=tmp_path / "expected")
    found, expected = (list(answers_at(tmp_path / name, Condition())) for name in ("out", "expected"))
    assert found
    for one, other in zip(found, expected, strict=True):
        assert one.detections.scores.tolist() == other.detections.scores.tolist()
    for wrong in ("no", "events"):
        with pytest.raises(InputError, match=f"have halved='{wrong}', but halved='published'"):
            evaluate_opened(detector, open_dataset(streets, "test", halve=wrong), [Condition()])
    prepare(open_dataset(streets, "test"), tmp_path / "frames", Sampling(bins=detector.config.bins), processes=1)
    with pytest.raises(InputError, match="have halved='no'"):
        evaluate(tmp_path / "published.safetensors", tmp_path / "frames", rates=(20.0,))


def test_pycocotools_agrees_with_what_was_written(tmp_path: Path) -> None:
    """`examples/rescore.py`, of boxes that are partly right."""
    pytest.importorskip("pycocotools")
    write_dataset(tmp_path / "streets", DatasetConfig(recordings=2, seconds=0.8, split="test"), processes=1)
    evaluate("nano", tmp_path / "streets", rates=(20.0, 40.0), out=tmp_path / "scores", processes=1)
    command = [sys.executable, "-m", "examples.rescore", str(tmp_path / "scores"), "--tolerance", "1e-6"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    rows = [row.strip("| ").split(" | ") for row in said.splitlines()[2:]]
    assert [row[1] for row in rows] == ["sliding-direct-20Hz", "sliding-direct-40Hz"]
    assert all(float(row[2]) == pytest.approx(float(row[3]), abs=1e-3) and 1 < float(row[2]) < 99 for row in rows)
