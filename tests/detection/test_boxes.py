"""Boxes: there and back, overlaps against plain numbers, cells in the published order, labels refused that can't be learnt."""

import numpy as np
import pytest
import torch

from saccade.detection.boxes import Target, cell_grid, cells_of, check_target, from_labels, from_raw, from_xywh, overlap, to_xywh
from saccade.detection.loss import loss, to_raw
from saccade.detection.matching import iou
from saccade.representation.canvas import Canvas
from saccade.types import InputError, Labels
from tests.detection import make


def test_centres_and_corners_are_inverse() -> None:
    boxes = make.boxes(50, torch.Generator().manual_seed(1))
    torch.testing.assert_close(from_xywh(to_xywh(boxes)), boxes)
    torch.testing.assert_close(from_xywh(torch.tensor([10.0, 20.0, 4.0, 6.0])), torch.tensor([8.0, 17.0, 12.0, 23.0]))


@pytest.mark.parametrize("whole", [False, True])
def test_iou_is_that_of_plain_numbers(whole: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = make.boxes(30, generator, whole=whole), make.boxes(20, generator, whole=whole)
    slow = torch.tensor([[make.iou(x.tolist(), y.tolist()) for y in b] for x in a], dtype=torch.float64)
    torch.testing.assert_close(overlap(a[:, None], b), slow)
    assert np.array_equal(iou(a.numpy(), b.numpy()), overlap(a[:, None], b).numpy())
    torch.testing.assert_close(overlap(a, a), torch.tensor([make.iou(x.tolist(), x.tolist()) for x in a], dtype=torch.float64))


def test_iou_of_boxes_without_area_is_zero() -> None:
    point = torch.tensor([[3.0, 3.0, 3.0, 3.0], [5.0, 1.0, 2.0, 4.0]])
    assert not overlap(point[:, None], point).any()
    assert not iou(point.numpy(), point.numpy()).any()


def test_cells_are_in_the_published_order() -> None:
    cells = cell_grid(make.SMALL)
    assert torch.stack(cells, 1).tolist() == [list(map(float, cell)) for cell in make.cell_list(make.SMALL)]
    assert len(cell_grid(make.GEN1).x) == 1_680


def test_grids_of_any_size_in_one_process() -> None:
    for grids in (make.SMALL, make.GEN1, make.SMALL, ((0, 0), (0, 0), (0, 0))):
        assert len(cell_grid(grids).x) == len(make.cell_list(grids))


def test_a_grid_first_used_for_inference_serves_training() -> None:
    grids = ((3, 5), (2, 3), (1, 2))
    predictions = make.predictions(1, grids=grids)
    with torch.inference_mode():
        cells_of(predictions)
    raw = predictions.boxes.requires_grad_()
    from_raw(raw, cell_grid(grids)).sum().backward()
    loss(predictions, make.targets([2])).total.backward()


def test_predictions_must_have_the_cells_of_their_grids() -> None:
    with pytest.raises(InputError, match="32 cells, but grids"):
        cells_of(make.predictions()._replace(grids=make.GEN1))
    with pytest.raises(InputError, match="strides"):
        cell_grid(((4, 6), (2, 3)))


def test_what_the_head_should_say_gives_the_box_back() -> None:
    cells = cell_grid(make.SMALL, dtype=torch.float64)
    boxes = make.boxes(len(cells.x), torch.Generator().manual_seed(3))
    torch.testing.assert_close(from_xywh(from_raw(to_raw(boxes, cells), cells)), boxes)


def test_labels_become_targets_on_the_canvas() -> None:
    labels = Labels(np.zeros(2, np.int64), np.array([[2, 4, 6, 8], [0, 0, 10, 20]], np.float32), np.array([1, 0]), np.array([-1, -1]))
    target = from_labels(labels, Canvas.half(64, 64))
    assert target.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 5, 10]]
    assert target.boxes.dtype == torch.float32
    assert target.classes.tolist() == [1, 0]
    assert from_labels(labels).boxes.tolist() == labels.boxes.tolist()
    assert len(from_labels(Labels.empty()).boxes) == 0


@pytest.mark.parametrize("box", [[4, 4, 4, 8], [4, 8, 8, 8], [8, 0, 4, 4], [0, 0, np.nan, 4], [0, 0, np.inf, 4]])
def test_labels_without_area_are_refused(box: list[float]) -> None:
    boxes = torch.tensor([[0, 0, 4, 4], box], dtype=torch.float32)
    with pytest.raises(InputError, match="box 1 is"):
        check_target(Target(boxes, torch.zeros(2, dtype=torch.int64)))


@pytest.mark.parametrize("kind", [-1, 3])
def test_classes_that_the_head_lacks_are_refused(kind: int) -> None:
    with pytest.raises(InputError, match="the head has 3"):
        loss(make.predictions(1), [Target(torch.tensor([[0.0, 0, 4, 4]]), torch.tensor([kind]))])
