"""The field's protocol gives the published numbers, with its traps; ours avoids them."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from saccade.config import GEN1_CLASSES, ONE_MPX_CLASSES
from saccade.datasets.recording import Dataset
from saccade.detection.decode import decode
from saccade.evaluation.result import Answer
from saccade.evaluation.score.average_precision import score
from saccade.evaluation.score.protocol import PROTOCOLS, Protocol, protocol_of
from saccade.types import Detections, InputError, Labels
from tests.detection import make
from tests.detection.test_decode import say
from tests.evaluation.make import CLASSES, NOTHING, labels_of
from tests.training.make import Toy


@dataclass(frozen=True)
class Sized(Toy):
    """A recording of which only the width matters."""

    width: int = 304


def dataset(name: str, width: int, classes: tuple[str, ...] = CLASSES) -> Dataset:
    return Dataset(name, "test", classes, [Sized(0, width=width)])


GEN1 = dataset("gen1", 304, GEN1_CLASSES)


def found(boxes: list[list[float]], scores: list[float]) -> Detections:
    return Detections(np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32), np.zeros(len(boxes), np.int64), 0)


def labelled(*boxes: list[float]) -> Labels:
    return labels_of(np.array(boxes, np.float32).reshape(-1, 4), np.zeros(len(boxes)))


def test_the_published_evaluation_of_gen1(shared: Path) -> None:
    stored = np.load(shared / "published/evaluation_gen1.npz")

    def boxes(rows: np.ndarray) -> np.ndarray:
        return np.stack([rows["x"], rows["y"], rows["x"] + rows["w"], rows["y"] + rows["h"]], 1)

    answers = []
    for t in np.unique(stored["gt"]["t"]).tolist():
        truth, guess = (rows[rows["t"] == t] for rows in (stored["gt"], stored["dt"]))
        labels = labels_of(boxes(truth), truth["class_id"].astype(np.int64), t=t)
        answers.append(Answer("", t, labels, Detections(boxes(guess), guess["class_confidence"], guess["class_id"].astype(np.int64), t)))
    scores = score(answers, GEN1_CLASSES, protocol_of("prophesee", GEN1))
    names = {"AP": "mAP", "AP_50": "ap50", "AP_75": "ap75", "AP_S": "ap_small", "AP_M": "ap_medium", "AP_L": "ap_large"}
    for published, ours in names.items():
        assert getattr(scores, ours) / 100 == pytest.approx(float(stored[f"metric_{published}"]), abs=1e-15), published


def test_sizes_by_data_set() -> None:
    half_second = 500_000
    for data, sizes, after_us in [
        (GEN1, (10, 30), half_second),
        (dataset("1mpx", 1280), (20, 60), half_second),
        (dataset("1mpx", 640), (10, 30), half_second),
        (dataset("etram", 640), (10, 30), half_second),
        (dataset("rvt", 304, GEN1_CLASSES), (10, 30), half_second),
        (dataset("rvt", 640, ONE_MPX_CLASSES), (10, 30), half_second),
        (dataset("dsec", 640), (0, 0), None),
        (dataset("synthetic", 304), (0, 0), None),
        (dataset("folder", 304), (0, 0), None),
    ]:
        field, ours = protocol_of("prophesee", data), protocol_of("saccade", data)
        assert (field.least_side, field.least_diagonal) == (ours.least_side, ours.least_diagonal) == sizes
        assert (field.after_us, ours.after_us) == (after_us, None)
        assert (field.ranking, ours.ranking, field.threshold, ours.threshold) == ("class", "product", 0.001, 0.001)
        assert (field.nms_iou, ours.nms_iou, field.empty_frames, ours.empty_frames) == (0.45, 0.45, False, True)


def test_false_positives_of_frames_whose_labels_are_all_too_small() -> None:
    """The field drops such frames with all that was wrongly found in them; ours keeps them."""
    box, tiny, elsewhere = [0, 0, 60, 60], [100, 100, 104, 104], [150, 150, 200, 200]
    good, bad = found([box], [0.5]), found([elsewhere], [0.9])
    for labels in (labelled(tiny), labelled()):
        answers = [Answer("", 1_000_000, labelled(box), good), Answer("", 1_050_000, labels, bad)]
        field, ours = (score(answers, GEN1_CLASSES, protocol_of(name, GEN1)) for name in ("prophesee", "saccade"))
        assert (field.frames, field.mAP) == (1, pytest.approx(100))
        assert (ours.frames, ours.labels, ours.mAP) == (2, 1, pytest.approx(50))


def test_labels_that_the_rules_left_out_are_ignored() -> None:
    """Whoever finds one is neither right nor wrong; whether a small box is wrong can be said only where the small labels are known."""
    ours, field = protocol_of("saccade", GEN1), protocol_of("prophesee", GEN1)
    box, tiny, other = [0, 0, 60, 60], [100, 100, 105, 105], [200, 100, 205, 105]

    def mean(protocol: Protocol, guess: Detections, ignored: Labels | None) -> float:
        return score([Answer("", 1_000_000, labelled(box), guess, ignored=ignored)], GEN1_CLASSES, protocol).mAP

    both = found([tiny, box], [0.9, 0.5])
    assert mean(ours, both, labelled(tiny)) == mean(ours, both, None) == mean(field, both, None) == pytest.approx(100)
    assert mean(ours, found([other, box], [0.9, 0.5]), labelled(tiny)) == pytest.approx(50)
    large = [100, 100, 160, 160]
    assert mean(ours, found([large, box], [0.9, 0.5]), labelled(large)) == pytest.approx(100)  # too wide, say, or hidden
    twice = found([tiny, tiny, box], [0.9, 0.8, 0.5])
    assert mean(ours, twice, labelled(tiny)) == pytest.approx(50)  # found a second time it's wrong, as any label


def test_a_small_prediction_that_finds_its_label_is_right_in_ours() -> None:
    label, guess = [0, 0, 10, 60], [0, 0, 9.5, 60]
    answers = [Answer("", 1_000_000, labelled(label), found([guess], [0.9]))]
    assert score(answers, GEN1_CLASSES, protocol_of("saccade", GEN1)).ap50 == pytest.approx(100)
    assert score(answers, GEN1_CLASSES, protocol_of("prophesee", GEN1)).ap50 == 0
    exact = [Answer("", 1_000_000, labelled([0.3, 0, 10.3, 60]), found([[0.3, 0, 10.3, 60]], [0.9]))]  # 10 px but for float32
    assert score(exact, GEN1_CLASSES, protocol_of("prophesee", GEN1)).mAP == pytest.approx(100)


def published_filter(sides: np.ndarray, least_side: float, least_diagonal: float) -> np.ndarray:
    """Of float32 sides, in float32, as the field's evaluation does it."""
    width, height = sides.astype(np.float32).T
    return (width**2 + height**2 >= least_diagonal**2) & (width >= least_side) & (height >= least_side)


@pytest.mark.parametrize("data", [GEN1, dataset("1mpx", 1280), dataset("1mpx", 640)], ids=["gen1", "1mpx", "halved"])
def test_boxes_near_the_least_size_are_dropped_as_published(data: Dataset) -> None:
    """To the last digit of float32, anywhere on the sensor: predictions by their corners, labels by the sides that their file gives."""
    protocol, random, n = protocol_of("prophesee", data), np.random.default_rng(0), 20_000
    width = data.recordings[0].width
    corner = random.uniform(0, width - 100, (n, 2)).astype(np.float32)
    sides = np.repeat([[protocol.least_side] * 2], n, axis=0)
    sides[np.arange(n), random.integers(0, 2, n)] = random.choice([protocol.least_side + 60, np.sqrt(8) * protocol.least_side], n)
    near = (sides + random.choice([0, 1e-6, 1e-5, 1e-4, 5e-4, 2e-3], (n, 2)) * random.choice([-1, 1], (n, 2))).astype(np.float32)
    boxes = np.concatenate([corner, corner + near], 1)
    expected = published_filter(boxes[:, 2:] - boxes[:, :2], protocol.least_side, protocol.least_diagonal)
    assert 0.2 < expected.mean() < 0.8
    np.testing.assert_array_equal(protocol.large(boxes), expected)
    given = published_filter(near, protocol.least_side, protocol.least_diagonal)
    assert protocol.large(boxes, rounded=True)[given].all(), "no label that the field counts is lost"
    digit = np.spacing(np.float32(width))
    assert not protocol.large(boxes, rounded=True)[(near < protocol.least_side - 2 * digit).any(axis=1)].any()


def test_a_prediction_half_a_thousandth_too_narrow_counts_for_nothing() -> None:
    """On 1 Mpx a slack of 1e-3 pixels kept it, a wrong box that the field doesn't see."""
    right, narrow = [100, 100, 200, 200], [1000.0, 300.0, 1019.9995, 400.0]
    answers = [Answer("", 1_000_000, labelled(right), found([narrow, right], [0.9, 0.5]))]
    assert score(answers, ONE_MPX_CLASSES, protocol_of("prophesee", dataset("1mpx", 1280, ONE_MPX_CLASSES))).mAP == pytest.approx(100)


def test_the_field_ranks_by_the_class_alone() -> None:
    """A box of which the detector doubts that it is an object goes before one of which it doubts the class."""
    right, wrong = [0.0, 0.0, 16.0, 16.0], [28.0, 8.0, 44.0, 28.0]
    predictions = make.silent()
    say(predictions, 0, 0, right, 0.9, [0.6, 0.001])
    say(predictions, 0, 10, wrong, 0.1, [0.9, 0.001])
    scores = {}
    for name, protocol in PROTOCOLS.items():
        options = {"threshold": protocol.threshold, "nms_iou": protocol.nms_iou, "maximum": protocol.maximum, "ranking": protocol.ranking}
        guess = decode(predictions, [0], **options)[0]
        assert len(guess) == 2  # the threshold is of the product under both
        scores[name] = score([Answer("", 1_000_000, labelled(right), guess)], GEN1_CLASSES, protocol).ap50
    assert scores == {"saccade": pytest.approx(100), "prophesee": pytest.approx(50)}


@pytest.mark.parametrize("start_us", [16_777_216, 3_600_000_000, 5 * 3_600_000_000])
def test_no_time_goes_through_float32(start_us: int) -> None:
    """float32 loses microseconds after 16.7 s."""
    protocol = replace(PROTOCOLS["prophesee"], after_us=start_us + 1)
    answers = [Answer("", start_us + i, replace(labelled([0, 0, 60, 60]), t=np.array([start_us + i])), NOTHING) for i in range(4)]
    assert score(answers, CLASSES, protocol).frames == 2


def test_wrong_protocols_are_refused() -> None:
    with pytest.raises(InputError, match="unknown name 'coco'; expected saccade or prophesee"):
        protocol_of("coco", GEN1)
    for wrong in ({"ranking": "best"}, {"threshold": 2.0}, {"maximum": 0}, {"least_side": -1.0}, {"small": "kept"}):
        with pytest.raises((InputError, TypeError)):
            Protocol(name="own", **wrong)
