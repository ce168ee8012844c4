"""The same weights give the same numbers: with any processes, batch and interruption, at every rate that is the trained one in disguise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Dataset
from saccade.evaluation.evaluate import answers_at, evaluate
from saccade.evaluation.result import Answer, Evaluation
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.passes import Decoding, lean, passes_of, run
from saccade.evaluation.run.timeline import timeline
from saccade.evaluation.validate import validate
from saccade.model.temporal import TEMPORAL_LAYERS
from saccade.types import Detections, InputError
from saccade.weights.load import save_detector
from tests.datasets.make import gen1_folder, labels_every, records
from tests.evaluation.squares import squares, untrained

PLAIN = Condition()
FAST = Condition(rate_hz=60, stepping="interleaved")


def every(memory: str) -> dict[str, tuple[str, ...]]:
    return {"memories": (memory,) * 4}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return squares(tmp_path_factory.mktemp("squares"))


def numbers(evaluation: Evaluation) -> list[object]:
    return [
        repr((r.scores, r.streaming, r.by_still_s, r.curves, r.age_ms, r.cost.frames, r.cost.recorded_s, r.ghosts, r.draws))
        for r in evaluation.results
    ]


def assert_same(one: Detections | None, two: Detections | None, exactly: bool = True) -> None:
    assert one is not None
    assert two is not None
    assert one.time_us == two.time_us
    if exactly:
        for name in ("boxes", "scores", "classes"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        return
    assert abs(len(one) - len(two)) <= 2, "at the threshold a last bit may decide"
    for name in ("boxes", "scores"):
        np.testing.assert_allclose(getattr(one, name)[:5], getattr(two, name)[:5], atol=0.02 if name == "boxes" else 1e-4)


def said(out: Path, condition: Condition) -> list[Answer]:
    return list(answers_at(out, condition))


def test_processes_and_batch_change_nothing(data: Dataset, tmp_path: Path) -> None:
    conditions = [PLAIN, Condition(rate_hz=30, window="disjoint"), Condition(rate_hz=60, stepping="interleaved", jitter=0.3, drop=0.2)]
    first = evaluate(untrained(), data, conditions, out=tmp_path / "a", latency_ms=30)
    for name, change in (("b", {"processes": 2, "batch": 2}), ("c", {"batch": 1})):
        other = evaluate(untrained(), data, conditions, out=tmp_path / name, latency_ms=30, **change)
        assert numbers(other) == numbers(first)
        for condition in conditions:
            for one, two in zip(said(tmp_path / "a", condition), said(tmp_path / name, condition), strict=True):
                assert (one.recording, one.instant_us) == (two.recording, two.instant_us)
                np.testing.assert_array_equal(one.labels.boxes, two.labels.boxes)
                assert_same(one.detections, two.detections)
                assert_same(one.late, two.late)
    assert sum(len(answer.detections) for answer in said(tmp_path / "a", PLAIN)) > 100
    assert first.results[0].scores.frames == len(said(tmp_path / "a", PLAIN)) == 60


def test_recordings_that_go_through_together_are_those_that_go_alone(data: Dataset) -> None:
    """What a GPU does; there other kernels may change last bits."""
    detector, passes = untrained(), []
    for recording in data.recordings:
        for condition in (PLAIN, FAST):
            passes += passes_of(recording, timeline(recording, condition, detector.config, 20), condition, 50_000)
    alone, together = ({}, {})
    for found, count in ((alone, 1), (together, 4)):
        for part in run(detector, passes, Decoding(threshold=0.05), together=count):
            found.setdefault(part.number, []).extend(part.detections)
    assert alone.keys() == together.keys()
    for number, found in alone.items():
        for one, two in zip(found, together[number], strict=True):
            assert_same(one, two, exactly=False)


def test_an_adaptive_rate_says_what_it_came_to(data: Dataset, tmp_path: Path) -> None:
    adaptive = Condition(rate_hz=200, min_rate_hz=10)
    found = evaluate(untrained(), data, [PLAIN, Condition(rate_hz=200), adaptive], out=tmp_path, recordings=1)
    constant, fast, between = (result.cost.steps_per_s for result in found.results)
    assert constant == pytest.approx(20, rel=0.1)
    assert fast == pytest.approx(200, rel=0.1)
    assert 10 <= between < fast
    assert [series.name for series in found.series] == ["sliding, direct", "sliding, direct, adaptive from 10 Hz"]
    assert all(0 <= answer.instant_us - answer.detections.time_us <= 100_000 for answer in said(tmp_path, adaptive))
    with pytest.raises(InputError, match="swap them"):
        evaluate(untrained(), data, [Condition(rate_hz=20, min_rate_hz=40)])
    for wrong in ({"jitter": 0.1}, {"drop": 0.1}, {"window": "shrunk"}):
        with pytest.raises(InputError, match="adaptive"):
            Condition(rate_hz=200, min_rate_hz=10, **wrong)
    with pytest.raises(InputError, match="1 to 1000"):
        Condition(rate_hz=200, min_rate_hz=0.5)


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("condition", [PLAIN, FAST, Condition(rate_hz=60, jitter=0.5, stepping="interleaved")], ids=lambda c: c.name)
def test_any_chunks_give_the_same(data: Dataset, condition: Condition, chunk: int) -> None:
    detector, recording = untrained(), data.recordings[0]
    passes = passes_of(recording, timeline(recording, condition, detector.config, 20), condition, 50_000)
    whole, parts = (
        [one for part in run(detector, passes, Decoding(threshold=0.05), chunk=size) for one in part.detections] for size in (64, chunk)
    )
    assert len(whole) == passes[0].wanted.sum() > 10
    for one, two in zip(whole, parts, strict=True):
        assert_same(one, two, exactly=False)


@pytest.mark.parametrize("window", ["sliding", "disjoint"])
@pytest.mark.parametrize(
    ("changes", "share"),
    [({"rate_hz": 200}, 0.12), ({"rate_hz": 60, "jitter": 0.3}, 1), ({"rate_hz": 200, "reset_every": 3}, 0.12), ({"rate_hz": 30}, 1)],
    ids=str,
)
def test_chains_that_answer_nobody_are_not_run(data: Dataset, window: str, changes: dict[str, float], share: float) -> None:
    condition = Condition(stepping="interleaved", window=window, **changes)
    detector, recording = untrained(), data.recordings[0]
    whole = passes_of(recording, timeline(recording, condition, detector.config, 20), condition, 50_000)
    parts = [lean(what) for what in whole]
    assert sum(len(what.phase.ends_us) for what in parts) <= share * sum(len(what.phase.ends_us) for what in whole)
    every, fewer = (
        [one for part in run(detector, passes, Decoding(threshold=0.05)) for one in part.detections] for passes in (whole, parts)
    )
    assert len(every) > 10
    for one, two in zip(every, fewer, strict=True):
        assert_same(one, two, exactly=False)


def test_one_chain_is_run_as_it_is(data: Dataset) -> None:
    detector, recording = untrained(), data.recordings[0]
    for condition in (PLAIN, Condition(rate_hz=200), Condition(rate_hz=10, stepping="interleaved")):
        for what in passes_of(recording, timeline(recording, condition, detector.config, 20), condition, 50_000):
            assert lean(what) is what


def test_speed_is_that_of_a_live_stream(data: Dataset) -> None:
    """Neither chains that weren't run nor phases that were run beside one another count for it."""
    conditions = [Condition(rate_hz=200), Condition(rate_hz=200, stepping="interleaved"), Condition(rate_hz=5)]
    direct, chains, slow = (result.cost for result in evaluate(untrained(), data, conditions, recordings=1).results)
    assert chains.steps == direct.steps == direct.frames > 5 * chains.frames
    assert slow.frames > 3 * slow.steps
    for cost, rate_hz in ((direct, 200), (chains, 200), (slow, 5)):
        assert cost.times_real_time == pytest.approx(cost.frames_per_s / rate_hz, rel=0.3)


@pytest.mark.parametrize("memory", TEMPORAL_LAYERS)
def test_interleaved_at_a_multiple_says_what_the_trained_rate_says(data: Dataset, tmp_path: Path, memory: str) -> None:
    """Each chain is the trained network; that which ends at the labels answers them. Stepped directly it is another one."""
    conditions = [PLAIN, FAST, Condition(rate_hz=60)]
    evaluate(untrained(**every(memory)), data, conditions, out=tmp_path, recordings=1)
    trained, chains, direct = (said(tmp_path, condition) for condition in conditions)
    assert len(trained) == 16
    for one, two in zip(trained, chains, strict=True):
        assert abs(one.detections.time_us - two.detections.time_us) <= 1
        assert_same(one.detections, replace(two.detections, time_us=one.detections.time_us), exactly=False)
    assert any(
        len(one.detections) != len(two.detections) or np.abs(one.detections.scores - two.detections.scores).max() > 1e-3
        for one, two in zip(trained, direct, strict=True)
    )


def test_without_memory_stepping_plays_no_role(data: Dataset, tmp_path: Path) -> None:
    conditions = [Condition(rate_hz=60), Condition(rate_hz=60, stepping="interleaved"), Condition(rate_hz=60, reset_every=3)]
    evaluate(untrained(**every("none")), data, conditions, out=tmp_path, recordings=1)
    direct, *others = (said(tmp_path, condition) for condition in conditions)
    for other in others:
        for one, two in zip(direct, other, strict=True):
            assert_same(one.detections, two.detections, exactly=False)


def test_at_the_trained_rate_it_is_what_training_validates(data: Dataset, tmp_path: Path) -> None:
    detector = untrained()
    save_detector(detector, tmp_path / "weights.safetensors")
    evaluation = evaluate(tmp_path / "weights.safetensors", data, [PLAIN])
    assert repr(evaluation.results[0].scores) == repr(validate(detector, data, threshold=0.001))
    assert (evaluation.dataset, evaluation.split, evaluation.recordings, evaluation.model) == ("squares", "test", 3, "tiny")
    assert evaluation.results[0].age_ms == 0
    cost = evaluation.results[0].cost
    assert cost.recorded_s == pytest.approx(3.0, abs=0.2)
    assert cost.frames == pytest.approx(3 * 20, abs=4)
    assert cost.seconds > 0


def test_late_answers_are_those_that_were_ready(data: Dataset, tmp_path: Path) -> None:
    for latency_ms, oldest_ms in ((0.0, 0), (30.0, 50), (120.0, 250)):
        result = evaluate(untrained(), data, [PLAIN], out=tmp_path, latency_ms=latency_ms, recordings=1).results[0]
        assert result.cost.step_ms == latency_ms
        assert result.streaming is not None
        late = said(tmp_path, PLAIN)[7:15]  # of the first recording, after the first answer could be ready
        ages_ms = {(answer.instant_us - answer.late.time_us) / 1000 for answer in late if answer.late}
        assert latency_ms <= min(ages_ms)
        assert max(ages_ms) <= oldest_ms
    measured = [
        evaluate(untrained(), data, [PLAIN], out=tmp_path, latency_ms="measured", recordings=1).results[0].cost.step_ms for _ in range(2)
    ]
    assert measured[0] == measured[1], "kept, or a second call couldn't go on"
    assert 0 < (measured[0] or 0) < 1000
    assert evaluate(untrained(), data, [PLAIN], recordings=1).results[0].streaming is None


def test_wrong_input_is_named(data: Dataset) -> None:
    for change, text in (
        ({"conditions": []}, "at least one"),
        ({"conditions": [PLAIN, PLAIN]}, "each once"),
        ({"processes": 0}, "processes=0"),
        ({"latency_ms": -1.0}, "latency_ms"),
        ({"protocol": "ours"}, "unknown name"),
        ({"dataset": replace(data, classes=("tram", "bus"))}, "give the classes the same names"),
        ({"dataset": replace(data, recordings=())}, "no recordings"),
    ):
        with pytest.raises(InputError, match=text):
            evaluate(**{"weights": untrained(), "dataset": data, "conditions": [PLAIN], **change})  # type: ignore[arg-type]


def test_labels_that_the_rules_leave_out_reach_the_protocol(tmp_path: Path) -> None:
    """Gen1: below 10 pixels. Ours ignores them, the field's never hears of them. Neither hears of the first half second."""
    gen1_folder(tmp_path / "gen1", ("a",), split="test", span_us=1_500_000)
    large = labels_every(250_000, 3)
    np.save(tmp_path / "gen1/test/a_bbox.npy", records([(400_000, 20, 30, 60, 50, 0, 7), *large, (850_000, 100, 100, 9, 40, 1, 8)]))
    dataset = open_dataset(tmp_path / "gen1", "test")
    detector = untrained()
    detector.config = replace(detector.config, classes=dataset.classes)
    result = evaluate(detector, dataset, [PLAIN], out=tmp_path / "out").results[0]
    found = [None if answer.ignored is None else answer.ignored.boxes.tolist() for answer in said(tmp_path / "out", PLAIN)]
    assert found == [[], [[100, 100, 109, 140]], []]
    assert (result.scores.labels, result.scores.ignored, result.scores.frames) == (3, 1, 3)
    field = evaluate(detector, dataset, [PLAIN], out=tmp_path / "out", protocol="prophesee").results[0]
    assert (field.scores.labels, field.scores.ignored, field.scores.frames) == (3, 0, 3)
