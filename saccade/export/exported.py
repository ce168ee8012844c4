"""EXPORTED FILE -> Runtime: what a file says of itself, and a step through whatever computes its graph. numpy only."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.config import DetectorConfig
from saccade.files import check_readable
from saccade.types import InputError

FORMAT = "1"
FIXED = {"saccade", "config", "size", "states"}  # what a file must say; it may say more
Arrays = tuple[np.ndarray, ...]
Run = Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], Sequence[np.ndarray]]  # frames, dt, states -> rows, states


def exported_file(path: Path | str, suffix: str, runtime: str) -> Path:
    """The path, if a file of this runtime's kind can be read there."""
    path = Path(path)
    if path.suffix != suffix:
        raise InputError(f"{path}: runtime {runtime} reads a {suffix} file; write it with `saccade export {path} {path.stem}{suffix}`")
    check_readable(path)
    return path


@dataclass(frozen=True)
class Signature:
    """Inputs frames (batch, channels, height, width) uint8 counts, dt (batch,) float32 in windows of the training, and the states,
    float32, zero at the start; outputs rows (batch, cells, 5 + classes), and every state under its name with `next_` before it.
    """

    config: DetectorConfig
    height: int  # of the graph's input: what was asked for, rounded up to what the network divides
    width: int
    states: dict[str, tuple[int, ...]]  # shapes without the batch, in the order of the inputs

    @property
    def inputs(self) -> list[str]:
        return ["frames", "dt", *self.states]

    @property
    def outputs(self) -> list[str]:
        return ["rows", *(f"next_{name}" for name in self.states)]

    def to_metadata(self) -> dict[str, str]:
        """As text, for the file: it needs no other."""
        return {
            "saccade": FORMAT,
            "config": self.config.to_json(),
            "size": f"{self.height}x{self.width}",
            "states": json.dumps({name: list(shape) for name, shape in self.states.items()}),
        }

    @classmethod
    def from_metadata(cls, path: Path, metadata: Mapping[str, str]) -> "Signature":
        if not set(metadata) >= FIXED:
            raise InputError(f"{path}: not a file of `saccade export` (it doesn't say {', '.join(sorted(FIXED - set(metadata)))})")
        if metadata["saccade"] != FORMAT:
            raise InputError(f"{path}: exported in format {metadata['saccade']}, this saccade reads {FORMAT}; export the weights again")
        try:
            height, width = (int(side) for side in metadata["size"].split("x"))
            states = {str(name): tuple(map(int, shape)) for name, shape in json.loads(metadata["states"]).items()}
            return cls(DetectorConfig.from_json(metadata["config"]), height, width, states)
        except (InputError, ValueError, AttributeError, TypeError) as error:
            raise InputError(f"{path}: what it says of itself is damaged ({error}); export the weights again") from error

    def pad(self, path: Path, frame: np.ndarray) -> np.ndarray:
        """With zeros at the bottom and right, as `Detector.encode` does; a frame of another size has no place in the graph."""
        down, across = self.height - frame.shape[1], self.width - frame.shape[2]
        self.check_size(path, *frame.shape[1:])
        return np.pad(frame, ((0, 0), (0, down), (0, across))) if down or across else frame

    def check_size(self, path: Path, height: int, width: int) -> None:
        multiple = self.config.backbone.multiple
        if (-(-height // multiple) * multiple, -(-width // multiple) * multiple) != (self.height, self.width):
            raise InputError(
                f"{path}: was exported for frames of {self.width} x {self.height}, got {width} x {height}; "
                f"export the weights once more with --size {width}x{height}"
            )


class ExportedRuntime:
    """A Runtime around the function that runs a file's graph."""

    def __init__(self, path: Path, signature: Signature, run: Run) -> None:
        self.path, self.signature, self.config, self.run = path, signature, signature.config, run

    def initial_state(self, height: int, width: int) -> Arrays:
        self.signature.check_size(self.path, height, width)
        return tuple(np.zeros((1, *shape), np.float32) for shape in self.signature.states.values())

    def step(self, frame: np.ndarray, state: Arrays, dt: float) -> tuple[np.ndarray, Arrays]:
        channels = self.config.backbone.channels
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[0] != channels:
            raise InputError(f"{self.path}: a frame must be uint8 ({channels}, height, width), got {frame.dtype} {frame.shape}")
        if not 0 < dt < float("inf"):
            raise InputError(f"{self.path}: dt={dt} must be positive and finite")
        frames = np.ascontiguousarray(self.signature.pad(self.path, frame))[None]
        rows, *states = self.run(frames, np.array([dt], np.float32), state)
        return rows[0], tuple(states)

    def prepare(self, dt: float) -> None:
        """The graph works out what depends on dt in every step."""

    def state_to_arrays(self, state: Arrays) -> dict[str, np.ndarray]:
        return dict(zip(self.signature.states, state, strict=True))

    def state_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        expected = {name: (1, *shape) for name, shape in self.signature.states.items()}
        found = {name: tuple(array.shape) for name, array in arrays.items()}
        if found != expected:
            raise InputError(f"{self.path}: the state holds {found}, expected {expected}; it is of another model or size")
        return tuple(np.ascontiguousarray(arrays[name], np.float32) for name in expected)
