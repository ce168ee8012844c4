"""Decode: every cell against plain numbers; threshold, class-wise NMS, maximum, the way back to the sensor; broken outputs."""

import numpy as np
import pytest
import torch

from saccade.detection.decode import decode, decode_rows, dense
from saccade.evaluation.score.protocol import PROTOCOLS
from saccade.model.values import Predictions
from saccade.representation.canvas import Canvas
from saccade.types import InputError
from tests.detection import make


def sigmoid(value: float) -> float:
    return 1 / (1 + np.exp(-value))


def say(predictions: Predictions, frame: int, cell: int, box: list[float], objectness: float, classes: list[float]) -> None:
    """A cell says this box (corners in pixels) with these probabilities."""
    column, row, stride = make.cell_list(predictions.grids)[cell]
    left, top, right, bottom = box
    centre = [(left + right) / 2 / stride - column, (top + bottom) / 2 / stride - row]
    predictions.boxes[frame, cell] = torch.tensor([*centre, np.log((right - left) / stride), np.log((bottom - top) / stride)])
    predictions.objectness[frame, cell] = torch.logit(torch.tensor(objectness))
    predictions.classes[frame, cell] = torch.logit(torch.tensor(classes))


@pytest.mark.parametrize("grids", [make.SMALL, ((1, 2), (1, 1), (1, 1))])
def test_dense_is_what_plain_numbers_give(grids: tuple) -> None:
    predictions = make.predictions(grids=grids, dtype=torch.float64)
    slow = [
        [
            [
                *((raw[:2] + np.array(cell[:2])) * cell[2]),
                *(np.exp(raw[2:]) * cell[2]),
                sigmoid(objectness),
                *sigmoid(classes),
            ]
            for raw, objectness, classes, cell in zip(*frame, make.cell_list(grids), strict=True)
        ]
        for frame in zip(*(column.numpy() for column in predictions[:3]), strict=True)
    ]
    torch.testing.assert_close(dense(predictions), torch.tensor(np.array(slow)))


def test_bfloat16_is_decoded_in_float32() -> None:
    predictions = make.predictions(grids=make.GEN1, dtype=torch.bfloat16)
    exact = Predictions(*(column.float() for column in predictions[:3]), predictions.grids)
    assert dense(predictions).dtype == torch.float32
    torch.testing.assert_close(dense(predictions), dense(exact), rtol=0, atol=0)
    for found, same in zip(decode(predictions, [0, 1]), decode(exact, [0, 1]), strict=True):
        assert found.boxes.dtype == found.scores.dtype == np.float32
        assert np.array_equal(found.boxes, same.boxes)


def test_dense_exports() -> None:
    class Head(torch.nn.Module):
        def forward(self, boxes: torch.Tensor, objectness: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
            return dense(Predictions(boxes, objectness, classes, ((2, 4), (1, 2), (1, 1))))

    predictions = make.predictions(1, grids=((2, 4), (1, 2), (1, 1)))
    program = torch.export.export(Head(), predictions[:3])
    torch.testing.assert_close(program.module()(*predictions[:3]), dense(predictions))


def test_each_frame_has_its_own_boxes_scores_classes_and_time() -> None:
    predictions = make.silent(frames=3)
    say(predictions, 0, 5, [10, 4, 20, 14], 0.9, [0.2, 0.8])
    say(predictions, 2, 26, [1, 2, 30, 20], 0.5, [0.6, 0.1])
    say(predictions, 2, 0, [30, 20, 40, 30], 0.9, [0.9, 0.1])
    first, none, last = decode(predictions, [50_000, 100_000, 1 << 40])
    np.testing.assert_allclose(first.boxes, [[10, 4, 20, 14]], atol=1e-4)
    np.testing.assert_allclose(first.scores, [0.72], atol=1e-6)
    assert first.classes.tolist() == [1]
    assert len(none) == 0
    np.testing.assert_allclose(last.scores, [0.81, 0.3], atol=1e-6)  # best first
    assert [first.time_us, none.time_us, last.time_us] == [50_000, 100_000, 1 << 40]


def test_the_published_protocol_reports_the_class_alone_but_thresholds_the_product() -> None:
    predictions = make.silent()
    say(predictions, 0, 0, [0, 0, 8, 8], 0.9, [0.5, 0.1])
    say(predictions, 0, 5, [30, 10, 40, 20], 0.5, [0.8, 0.1])
    say(predictions, 0, 9, [10, 20, 18, 30], 0.05, [0.99, 0.1])  # 0.0495 < threshold, though the class is sure
    say(predictions, 0, 1, [0, 0, 8, 8.5], 0.4, [0.9, 0.1])  # under cell 0 by the product, though its class is surer
    (found,) = decode(predictions, [0], ranking="class")
    np.testing.assert_allclose(found.scores, [0.8, 0.5], atol=1e-6)
    np.testing.assert_allclose(found.boxes[1], [0, 0, 8, 8], atol=1e-4)


def test_only_boxes_of_one_class_compete_where_classes_stand_for_themselves() -> None:
    predictions = make.silent()
    say(predictions, 0, 0, [0, 0, 20, 20], 0.9, [0.9, 0.1])
    say(predictions, 0, 1, [0, 0, 20, 21], 0.8, [0.1, 0.9])
    say(predictions, 0, 2, [0, 0, 20, 22], 0.7, [0.9, 0.1])
    (found,) = decode(predictions, [0], across_iou=1.0)
    assert found.classes.tolist() == [0, 1]
    assert len(decode(predictions, [0], nms_iou=1.0, across_iou=1.0)[0]) == 3


def test_one_object_is_shown_once_as_what_it_most_likely_is() -> None:
    predictions = make.silent()
    say(predictions, 0, 0, [0, 0, 20, 20], 0.8, [0.1, 0.9])
    say(predictions, 0, 1, [0, 0, 20, 21], 0.9, [0.9, 0.1])
    say(predictions, 0, 2, [0, 8, 20, 28], 0.7, [0.1, 0.9])  # a rider before the car: overlaps by less
    (found,) = decode(predictions, [0])
    assert found.classes.tolist() == [0, 1]
    np.testing.assert_allclose(found.boxes, [[0, 0, 20, 21], [0, 8, 20, 28]], atol=1e-4)


def test_protocols_score_every_class_for_itself() -> None:
    assert {rules.decoding.across_iou for rules in PROTOCOLS.values()} == {1.0}


def test_threshold_and_maximum_keep_the_best() -> None:
    predictions = make.predictions(1, grids=make.GEN1, sharp=2.0)
    (everything,) = decode(predictions, [0], threshold=0, maximum=2_000)
    for threshold in (0.1, 0.5):
        (found,) = decode(predictions, [0], threshold=threshold, maximum=2_000)
        assert np.array_equal(found.boxes, everything.boxes[everything.scores >= np.float32(threshold)])
    (few,) = decode(predictions, [0], threshold=0, maximum=7)
    assert np.array_equal(few.boxes, everything.boxes[:7])
    assert (np.diff(everything.scores) <= 0).all()


def test_boxes_go_back_to_the_sensor_and_end_at_its_edge() -> None:
    canvas = Canvas.half(90, 60, multiple=(32, 48))  # on 45 x 30 of 48 x 32
    predictions = make.silent()
    say(predictions, 0, 0, [-4, 2, 10, 12], 0.9, [0.9, 0.1])
    say(predictions, 0, 23, [40, 20, 60, 40], 0.8, [0.9, 0.1])
    say(predictions, 0, 5, [46, 2, 48, 20], 0.7, [0.9, 0.1])  # on the padding: nothing of it is on the sensor
    (found,) = decode(predictions, [0], canvas)
    np.testing.assert_allclose(found.boxes, [[0, 4, 20, 24], [80, 40, 90, 60]], atol=1e-4)
    (raw,) = decode(predictions, [0])
    np.testing.assert_allclose(raw.boxes[:2], [[0, 2, 10, 12], [40, 20, 48, 32]], atol=1e-4)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e30, 200.0])
@pytest.mark.parametrize("column", range(4))
def test_outputs_without_end_give_boxes_on_the_sensor_or_none(column: int, value: float) -> None:
    predictions = make.silent()
    for cell in range(6):
        say(predictions, 0, cell, [0, 0, 20, 20], 0.9, [0.9, 0.1])
    predictions.boxes[0, :4, column] = value
    predictions.objectness[0, :4] = np.inf
    (found,) = decode(predictions, [0])
    assert np.isfinite(found.boxes).all()
    assert len(found)
    assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()
    assert (found.boxes <= [48, 32, 48, 32]).all()


@pytest.mark.parametrize("column", range(3))
def test_nan_is_refused(column: int) -> None:
    predictions = make.predictions()
    predictions[column][1].view(-1)[3] = np.nan
    with pytest.raises(InputError, match="predictions contain NaN"):
        decode(predictions, [0, 1])


def test_no_frames_give_no_detections() -> None:
    assert decode(make.predictions(0), []) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [({"threshold": 2}, "threshold=2"), ({"nms_iou": -1}, "nms_iou=-1"), ({"maximum": 0}, "maximum=0")],
)
def test_wrong_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(make.predictions(), [0, 1], **options)


def test_times_must_be_those_of_the_frames() -> None:
    with pytest.raises(InputError, match="1 times_us for 2 frames"):
        decode(make.predictions(), [0])


def test_rows_are_decoded_like_the_predictions_they_come_from() -> None:
    predictions = make.predictions(grids=make.GEN1, sharp=2.0)
    rows = dense(predictions).numpy()
    rows.flags.writeable = False  # runtimes may lend their memory
    for canvas in (Canvas.pad(304, 240, 64), Canvas.half(608, 480)):
        for one, other in zip(decode(predictions, [1, 2], canvas), decode_rows(rows, [1, 2], canvas), strict=True):
            assert np.array_equal(one.boxes, other.boxes)
            assert np.array_equal(one.scores, other.scores)
            assert one.time_us == other.time_us


@pytest.mark.parametrize("columns", [4, 5])
def test_rows_without_classes_are_refused(columns: int) -> None:
    with pytest.raises(InputError, match=r"5 \+ classes|no classes"):
        decode_rows(np.zeros((1, 2, columns), np.float32), [0], Canvas.pad(32, 32))
