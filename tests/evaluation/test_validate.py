"""A recording is one stream: how it is cut into chunks, and which process scores it, changes nothing."""

import numpy as np
import pytest
import torch

from saccade.datasets.recording import Sampling
from saccade.evaluation.evaluate import evaluate
from saccade.evaluation.result import Answer
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.passes import Decoding
from saccade.evaluation.validate import answers_of, validate
from saccade.model.detector import Detector
from tests.training.make import Toy, tiny_config, toys


@pytest.fixture(scope="module")
def detector() -> Detector:
    """Fresh weights whose objects are anywhere."""
    torch.manual_seed(0)
    detector = Detector(tiny_config()).eval()
    for scale in detector.head.scales:
        for layer in (scale.objectness, scale.classes):
            torch.nn.init.normal_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
    return detector


def test_frames_follow_one_another_as_in_training() -> None:
    sampling = Sampling.of(tiny_config())
    assert (sampling.rate_hz, sampling.window_us, sampling.bins) == (20, 50_000, 1)


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_any_chunks_give_the_same_detections(detector: Detector, chunk: int) -> None:
    whole, parts = (list(answers_of(detector, Toy(3), Decoding(threshold=0.05), chunk=size)) for size in (21, chunk))
    assert len(whole) == len(parts) == 20
    assert sum(len(scored.detections) for scored in whole)
    for one, two in zip(whole, parts, strict=True):
        assert one.detections.time_us == two.detections.time_us == one.labels.t[0]
        np.testing.assert_allclose(two.detections.scores, one.detections.scores, atol=1e-4)
        np.testing.assert_allclose(two.detections.boxes, one.detections.boxes, atol=1e-2)


def test_the_memory_lasts_through_the_recording(detector: Detector) -> None:
    """What is found late depends on what was seen early: the stream isn't cut."""

    class Blind(Toy):
        def frames(self, ends_us: np.ndarray, sampling: object) -> np.ndarray:
            seen = super().frames(ends_us, sampling)  # type: ignore[arg-type]
            return np.where((ends_us < 1_000_000)[:, None, None, None], np.uint8(0), seen)

    seeing, blind = (list(answers_of(detector, recording, Decoding(threshold=0.0))) for recording in (Toy(3), Blind(3)))
    after = next(number for number, scored in enumerate(seeing) if scored.detections.time_us >= 1_000_000)
    assert not np.array_equal(seeing[after].detections.scores, blind[after].detections.scores)


def test_several_processes_score_the_same(detector: Detector) -> None:
    data = toys("val", 3)
    parts: list[list[Answer]] = []
    for rank in range(2):
        validate(detector, data, threshold=0.05, rank=rank, world=2, share=lambda own: [parts.append(own) or own])  # type: ignore[func-returns-value]
    together = validate(detector, data, threshold=0.05, rank=0, world=2, share=lambda own: parts)
    assert together == validate(detector, data, threshold=0.05)
    assert together.frames == 60
    assert validate(detector, data, threshold=0.05, recordings=1).frames == 20


@pytest.mark.parametrize("protocol", ["prophesee", "saccade"])
def test_with_a_protocol_it_is_what_evaluate_says(detector: Detector, protocol: str) -> None:
    data = toys("val", 3)
    whole = evaluate(detector, data, [Condition(rate_hz=20)], protocol=protocol).results[0].scores
    alone = validate(detector, data, threshold=0.99, protocol=protocol)  # the protocol's own threshold counts
    assert alone.frames == whole.frames
    assert alone.ar100 == pytest.approx(whole.ar100, rel=0.02)  # another runtime: the last digits of a score may change ranks
    assert alone.mAP == pytest.approx(whole.mAP, rel=0.02)
    assert alone.ar100 > validate(detector, data, threshold=0.99).ar100
