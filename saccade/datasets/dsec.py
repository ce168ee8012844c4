"""DSEC + DSEC-Det TRACKS -> DATA SET: `events.h5` and `tracks.npy` of each sequence."""

from functools import partial
from pathlib import Path

from saccade.datasets.labels import read_boxes
from saccade.datasets.raw_events import EventRecording, Halve
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import DSEC, LabelRules, ruled
from saccade.datasets.splits import Selection

SENSOR = 640, 480
TRACKS = "tracks.npy"


def recognise(chosen: Selection) -> str | None:
    return "dsec" if next(chosen.files(TRACKS), None) else None


def open_dsec(chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """SEQUENCE/events/left/events.h5 + SEQUENCE/object_detections/left/tracks.npy as downloaded, or both in one folder SEQUENCE.

    The boxes belong to the distorted view of the left event camera, so the events are used as they are, without rectify_map.h5.
    """
    recordings, missing = [], []
    used = own_rules or DSEC
    for tracks in chosen.files(TRACKS):
        sequence = tracks.parent.parent.parent if tracks.parent.parent.name == "object_detections" else tracks.parent
        name = sequence.relative_to(chosen.folder).as_posix()
        if not chosen.has(name):
            continue
        events = _events_of(sequence)
        if events is None:
            missing.append(f"{tracks}: no events for it; expected {sequence}/events/left/events.h5 or {sequence}/events.h5")
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_boxes, tracks), used), SENSOR, halve or "no"))
    return Dataset("dsec", chosen.split, used.classes, tuple(recordings), tuple(missing))


def _events_of(sequence: Path) -> Path | None:
    places = (sequence / "events" / "left" / "events.h5", sequence / "events" / "events.h5", sequence / "events.h5")
    return next((path for path in places if path.is_file()), None)
