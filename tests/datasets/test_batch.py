"""Batches: labels in the order of the picked frames, zeros around, nothing else added."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from saccade.datasets.augment import Augmentation
from saccade.datasets.clips import Clip, ClipTimeline, cut, labels_of
from saccade.datasets.loader import collate
from saccade.datasets.recording import Sampling
from saccade.model.values import pick
from saccade.types import InputError, Labels
from tests.make.recordings import PaintedRecording, painted

SAMPLING = Sampling(bins=2)


def clip_of(recording, first: int, length: int = 5, augmentation: Augmentation | None = None, **options) -> Clip:
    ends_us = recording.ends_us(SAMPLING)
    timeline = ClipTimeline(SAMPLING, ends_us, np.arange(len(ends_us)))
    labels = labels_of(recording, timeline, first, length, 25_000)
    return cut(recording, timeline, first, labels, augmentation or Augmentation(), options.get("is_first", first == 0))


def three_clips() -> list[Clip]:
    return [clip_of(painted("a", 20, every=2, seed=1), 0), clip_of(painted("b", 20, every=3, boxes=1), 7), clip_of(painted("c", 20, 50), 3)]


def test_targets_come_in_the_order_of_picked_frames() -> None:
    """The features say which frame they are of: time in one axis, slot in another."""
    clips = three_clips()
    batch = collate(clips)
    times = batch.ends_us[:, :, None, None, None].expand(5, 3, 1, 1, 1)
    slots = torch.arange(3)[None, :, None, None, None].expand(5, 3, 1, 1, 1)
    picked_times, picked_slots, _ = pick((times, slots, slots), batch.labelled)
    assert len(batch.targets) == len(picked_times) == int(batch.labelled.sum()) == 4
    for target, time, slot in zip(batch.targets, picked_times.flatten().tolist(), picked_slots.flatten().tolist(), strict=True):
        clip = clips[slot]
        (labels,) = [labels for labels in clip.labels if labels.t[0] == time]
        np.testing.assert_array_equal(target.boxes, labels.boxes)
        np.testing.assert_array_equal(target.classes, labels.classes)


def test_every_slot_is_its_clip() -> None:
    clips = three_clips()
    batch = collate(clips)
    for slot, clip in enumerate(clips):
        for name in ("frames", "dt", "labelled", "ends_us"):
            np.testing.assert_array_equal(getattr(batch, name)[:, slot], getattr(clip, name))
    assert batch.names == ("a", "b", "c")
    assert batch.is_first.tolist() == [True, False, False]


def test_zeros_at_the_bottom_and_right() -> None:
    clips = [clip_of(painted("small", 20), 0), clip_of(painted("large", 20, width=50, height=30), 0)]
    frames = collate(clips, height=0, width=0, multiple=(32, 16)).frames
    assert frames.shape == (5, 2, 4, 32, 64)
    np.testing.assert_array_equal(frames[:, 0, :, :24, :40], clips[0].frames)
    assert not frames[:, 0, :, 24:].any()
    assert not frames[:, 0, :, :, 40:].any()
    assert not frames[:, 1, :, 30:].any()
    assert collate(clips, height=64, width=65, multiple=32).frames.shape[3:] == (64, 96)


def test_a_batch_without_labels() -> None:
    batch = collate([clip_of(painted("c", 20, 50), 3)])
    assert batch.targets == []
    assert not batch.labelled.any()
    assert batch.boxes.shape == (0, 4)


def test_a_labelled_frame_without_objects_teaches_that_there_are_none() -> None:
    clip = replace(clip_of(painted("c", 20, 50), 0), labelled=np.array([0, 1, 0, 0, 1], np.bool_), labels=(Labels.empty(), Labels.empty()))
    assert [len(target.boxes) for target in collate([clip]).targets] == [0, 0]


def test_a_frame_that_lost_every_box_counts_as_not_labelled() -> None:
    recording = painted("a", 20, every=2)  # boxes in the upper left
    clip = clip_of(recording, 0, augmentation=Augmentation(False, 4.0, 30.0, 18.0))
    assert not clip.labelled.any()
    assert clip.vanished == 4
    assert collate([clip, clip]).vanished == 8


def test_labels_stay_where_their_numbers_can_be_read() -> None:
    batch = collate(three_clips())
    moved = batch.to("meta")
    assert {getattr(moved, name).device.type for name in ("frames", "is_first")} == {"meta"}
    assert all(getattr(moved, name) is getattr(batch, name) for name in ("dt", "labelled", "boxes", "classes", "ends_us"))
    assert len(moved.targets) == len(batch.targets)


def test_clips_must_fit() -> None:
    with pytest.raises(InputError, match="at least one"):
        collate([])
    with pytest.raises(InputError, match="equal length"):
        collate([clip_of(painted("a", 20), 0, 5), clip_of(painted("a", 20), 0, 6)])


def test_frames_of_another_size_than_promised() -> None:
    class Narrow(PaintedRecording):
        def frames(self, ends_us, sampling):
            return super().frames(ends_us, sampling)[..., 1:]

    with pytest.raises(InputError, match="a: expected 5 frames of 40 x 24"):
        clip_of(Narrow(**vars(painted("a", 20))), 0)
