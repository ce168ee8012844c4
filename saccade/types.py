"""The values that flow: events, windows of events, labels, detections, and the one error that bad input raises."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt16

if TYPE_CHECKING:
    import supervision

Times = Int64[np.ndarray, "n"]  # microseconds
Coordinates = UInt16[np.ndarray, "n"]  # pixels of the sensor, origin at the top left
Polarities = Bool[np.ndarray, "n"]  # True = brighter
Boxes = Float32[np.ndarray, "n 4"]  # left, top, right, bottom in pixels of the sensor, right and bottom excluded
Scores = Float32[np.ndarray, "n"]
Ids = Int64[np.ndarray, "n"]  # classes or tracks
Stepping = Literal["direct", "interleaved"]  # which state a frame continues from: the newest, or that of a training window before
Faults = Literal["raise", "skip"]  # what damaged input and jumps of time do: InputError, or left out and counted
Counts = Literal["held", "plain"]  # of a window shorter than in training: as if it had gone on for so long, or as counted

FOLLOWED = 1 / 3  # of the least score: boxes of objects that a tracker follows are shown down to there
DTYPES = np.dtype(np.int64), np.dtype(np.uint16), np.dtype(np.uint16), np.dtype(np.bool_)


class InputError(ValueError):
    """Wrong input. The message says where, what, what was expected, and how to mend it."""


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Columns of equal length, in the order in which the recording stores them."""

    t: Times
    x: Coordinates
    y: Coordinates
    p: Polarities
    width: int
    height: int

    def __post_init__(self) -> None:
        columns = (self.t, self.x, self.y, self.p)
        if not (self.t.shape == self.x.shape == self.y.shape == self.p.shape and self.t.ndim == 1):
            raise InputError(f"Events: t, x, y, p must be columns of one length, got shapes {', '.join(str(c.shape) for c in columns)}")
        if (self.t.dtype, self.x.dtype, self.y.dtype, self.p.dtype) != DTYPES:
            raise InputError(
                f"Events: t, x, y, p must be int64 (us), uint16, uint16, bool, got {', '.join(str(c.dtype) for c in columns)}; "
                "convert them with .astype"
            )

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, which: "slice | np.ndarray") -> "Events":
        """The events of a slice, a mask or an index array; slices share memory."""
        return Events(self.t[which], self.x[which], self.y[which], self.p[which], self.width, self.height)

    def __iter__(self) -> "Iterator[Events]":
        """Itself, as a source of one chunk: what takes a recording takes a piece of one, too."""
        return iter((self,))

    @property
    def ordered(self) -> bool:
        """Whether no event is older than the one before it."""
        return not (self.t[1:] < self.t[:-1]).any()

    def between(self, start_us: int, end_us: int, ordered: bool | None = None) -> "Events":
        """The events of [start_us, end_us). ORDERED: whether they are in the order of time, if the caller knows; slices share memory."""
        if self.ordered if ordered is None else ordered:
            return Events.__getitem__(self, slice(int(self.t.searchsorted(start_us)), int(self.t.searchsorted(end_us))))
        return Events.__getitem__(self, (self.t >= start_us) & (self.t < end_us))

    @classmethod
    def empty(cls, width: int, height: int) -> "Events":
        none = np.zeros(0, np.uint16)
        return cls(np.zeros(0, np.int64), none, none, np.zeros(0, np.bool_), width, height)

    @classmethod
    def join(cls, parts: "list[Events]") -> "Events":
        """One after the other; all must come from a sensor of the same size."""
        if not parts:
            raise InputError("Events.join: nothing to join; use Events.empty(width, height)")
        if len(parts) == 1:
            return parts[0]
        sizes = {(part.width, part.height) for part in parts}
        if len(sizes) > 1:
            raise InputError(f"Events.join: parts of different sensors {sorted(sizes)}")
        t, x, y, p = (np.concatenate([getattr(part, name) for part in parts]) for name in "txyp")
        return cls(t, x, y, p, parts[0].width, parts[0].height)


@dataclass(frozen=True, slots=True, eq=False)
class Window(Events):
    """The events of the half-open interval [start_us, end_us)."""

    start_us: int
    end_us: int
    late: int = 0  # events that came too late for any window, since the previous window


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """What was found in one frame, best score first."""

    boxes: Boxes
    scores: Scores
    classes: Ids
    time_us: int  # end of the frame's window
    tracks: Ids | None = None  # ids that last as long as the object, where a tracker gave them

    def __post_init__(self) -> None:
        _check_rows("Detections", self.boxes, self.scores, self.classes, *([] if self.tracks is None else [self.tracks]))

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, which: "slice | np.ndarray") -> "Detections":
        tracks = None if self.tracks is None else self.tracks[which]
        return Detections(self.boxes[which], self.scores[which], self.classes[which], self.time_us, tracks)

    def shown(self, score: float) -> "Detections":
        """Boxes of at least this score, and those of objects that a tracker follows down to a third of it: half hidden, or slow for a
        moment, an object is as sure as before, though its box alone isn't."""
        enough = self.scores >= score
        if self.tracks is not None:
            enough |= (self.tracks >= 0) & (self.scores >= FOLLOWED * score)
        return self if enough.all() else self[enough]

    def table(self, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """A plain row per box, best score first: `pandas.DataFrame(detections.table(detector.config.classes))`, csv.DictWriter, JSON.

        NAMES: of the classes, by index; without them a class is its index. The track is None where no tracker gave one.
        """
        tracks = [None] * len(self) if self.tracks is None else self.tracks.tolist()
        rows = zip(self.boxes.tolist(), self.scores.tolist(), self._named(names), tracks, strict=True)
        return [
            {"time_us": self.time_us, "x1": x1, "y1": y1, "x2": x2, "y2": y2, "score": score, "class": name, "track": track}
            for (x1, y1, x2, y2), score, name, track in rows
        ]

    def to_coco(self, image_id: int, first_category: int = 1) -> list[dict[str, Any]]:
        """COCO's result records, as pycocotools' `loadRes` takes them: `results += detections.to_coco(image_id)`.

        FIRST_CATEGORY: id of class 0; 1 as in the files of `saccade detect --out boxes.json`, 0 where the labels count from 0.
        """
        left, top, right, bottom = self.boxes.astype(np.float64).T
        sized = np.stack([left, top, right - left, bottom - top], axis=1)
        return [
            {"image_id": image_id, "category_id": index + first_category, "bbox": box, "score": score}
            for box, index, score in zip(sized.tolist(), self.classes.tolist(), self.scores.tolist(), strict=True)
        ]

    def to_supervision(self, names: Sequence[str] | None = None) -> "supervision.Detections":
        """For the annotators, zones and trackers of supervision: `sv.BoxAnnotator().annotate(image, detections.to_supervision())`.

        NAMES: of the classes, by index; they become data["class_name"]. The time is metadata["time_us"].
        """
        try:
            import supervision
        except ImportError as error:
            raise InputError('to_supervision needs the package supervision; `pip install "saccade-events[supervision]"`') from error
        data: dict[str, Any] = {} if names is None else {"class_name": np.array(self._named(names), dtype=np.str_)}
        return supervision.Detections(
            xyxy=self.boxes.copy(),
            confidence=self.scores.copy(),
            class_id=self.classes.copy(),
            tracker_id=None if self.tracks is None else self.tracks.copy(),
            data=data,
            metadata={"time_us": self.time_us},
        )

    def _named(self, names: Sequence[str] | None) -> list[Any]:
        if names is None:
            return self.classes.tolist()
        if len(self) and not 0 <= int(self.classes.min()) <= int(self.classes.max()) < len(names):
            raise InputError(f"Detections: classes up to {self.classes.max()}, but only {len(names)} names: {', '.join(names)}")
        return [names[index] for index in self.classes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """True boxes of a recording in the order of time; rows of equal time are one labelled instant."""

    t: Times
    boxes: Boxes
    classes: Ids
    tracks: Ids  # -1 where nobody knows
    still_us: Times | None = None  # how long the object has made no events of its own, where that is known
    visible: Scores | None = None  # fraction of the object that is neither hidden nor outside, where that is known
    speed_px_s: Scores | None = None  # of the object in the world, without the camera's motion, where that is known

    def __post_init__(self) -> None:
        known = [column for column in (self.still_us, self.visible, self.speed_px_s) if column is not None]
        _check_rows("Labels", self.boxes, self.t, self.classes, self.tracks, *known)
        if len(self.t) > 1 and (self.t[1:] < self.t[:-1]).any():
            raise InputError("Labels: rows must be in the order of time; sort every column with np.argsort(t, kind='stable')")

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, which: "slice | np.ndarray") -> "Labels":
        """The rows of a slice, a mask or an index array."""
        known = (None if column is None else column[which] for column in (self.still_us, self.visible, self.speed_px_s))
        return Labels(self.t[which], self.boxes[which], self.classes[which], self.tracks[which], *known)

    @classmethod
    def empty(cls) -> "Labels":
        none = np.zeros(0, np.int64)
        return cls(none, np.zeros((0, 4), np.float32), none, none)


def _check_rows(what: str, boxes: np.ndarray, *columns: np.ndarray) -> None:
    if boxes.shape[1:] != (4,) or [column.shape for column in columns] != [boxes.shape[:1]] * len(columns):
        raise InputError(
            f"{what}: boxes must be (n, 4) and every other column (n,), got {', '.join(str(c.shape) for c in (boxes, *columns))}"
        )


def check_class_names(names: Sequence[str], where: str) -> None:
    """They go into tables, reports and file formats: text that can be printed on one line, each once."""
    strange = [name for name in names if not name or not name.isprintable()]
    if strange:
        raise InputError(f"{where}: class {strange[0]!r:.80}; expected a name without line breaks, control characters and broken text")
    if not names or len(set(names)) != len(names):
        raise InputError(f"{where}: {len(names)} classes, {len(set(names))} different; expected at least one name, and each once")
