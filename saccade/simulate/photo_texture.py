"""CUT-OUT -> TEXTURE: turned, resized, lit and blurred as a recording shows it, with the outline that its box follows."""

from dataclasses import dataclass

import numpy as np

from saccade.simulate.cutouts import import_cv2

STRAY_LIGHT = 0.015  # intensity of black


@dataclass(frozen=True)
class Exposure:
    """Light and lens of a recording."""

    light: float  # of white; night to noon
    contrast: float
    haze: float
    blur: float  # px of the canvas, standard deviation

    def expose(self, intensity: np.ndarray) -> np.ndarray:
        return (self.light * (STRAY_LIGHT + self.haze + self.contrast * intensity)).astype(np.float32)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def turn(rng: np.random.Generator, intensity: np.ndarray, mask: np.ndarray, most: float) -> tuple[np.ndarray, np.ndarray]:
    """The cut-out as a camera sees it that hangs higher, or tilted: photographers stand on the ground and hold theirs level."""
    cv2 = import_cv2()
    angle, shear = most * float(np.clip(rng.normal(0, 0.22), -0.6, 0.6)), most * float(rng.uniform(-0.35, 0.35))
    squash = log_uniform(rng, 0.65, 1.3) ** most
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.array([[1.0, shear], [0.0, squash]])
    rows, columns = mask.shape
    corners = np.array([[0, 0], [columns, 0], [0, rows], [columns, rows]]) @ turn.T
    move = 1 - corners.min(axis=0)
    size = tuple(int(side) for side in np.ceil(corners.max(axis=0) + move) + 1)
    matrix = np.column_stack((turn, move))
    covered = cv2.warpAffine(np.ascontiguousarray(mask, np.float32), matrix, size)
    inside = np.argwhere(covered >= 0.5)
    if len(inside) < 24:
        return intensity, mask
    turned = cv2.warpAffine(np.ascontiguousarray(intensity, np.float32), matrix, size, borderMode=cv2.BORDER_REPLICATE)
    (top, left), (bottom, right) = inside.min(axis=0), inside.max(axis=0) + 1
    return turned[top:bottom, left:right], covered[top:bottom, left:right]


def texture_of(rng: np.random.Generator, intensity: np.ndarray, mask: np.ndarray, resize: float, blur: float, look: Exposure) -> np.ndarray:
    """(rows, columns, 2): intensity and coverage of a cut-out, as large as it will be seen, with one of several soft edges."""
    cv2 = import_cv2()
    how = cv2.INTER_AREA if resize < 1 else cv2.INTER_LINEAR
    size = (max(6, round(intensity.shape[1] * resize)), max(6, round(intensity.shape[0] * resize)))
    border = max(3, int(np.ceil(2.5 * blur)) + 1)
    pixels = cv2.resize(np.ascontiguousarray(intensity), size, interpolation=how)
    pixels = cv2.copyMakeBorder(pixels, border, border, border, border, cv2.BORDER_REPLICATE)
    covered = cv2.resize(np.ascontiguousarray(mask, np.float32), size, interpolation=how)
    covered = cv2.copyMakeBorder(covered, border, border, border, border, cv2.BORDER_CONSTANT, value=0)
    if blur > 0.2:
        pixels = cv2.GaussianBlur(pixels, (0, 0), blur)
    feather = blur * float(rng.choice([0.5, 1.0, 1.6]))
    if feather > 0.2:
        covered = cv2.GaussianBlur(covered, (0, 0), feather)
    covered[0], covered[-1], covered[:, 0], covered[:, -1] = 0, 0, 0, 0
    exposed = look.expose(np.clip(pixels, 0, 1) * np.exp(rng.normal(0, 0.25)))
    return np.stack((exposed, np.clip(covered, 0, 1)), axis=2).astype(np.float32)


def edges_of(covered: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Where coverage passes one half: columns at which each row begins and ends (NaN: nowhere), the first and the last row."""
    left, right = np.full(len(covered), np.nan), np.full(len(covered), np.nan)
    for i, line in enumerate(covered):
        if line.max() >= 0.5:
            left[i], right[i] = _crossings(line)
    profile = covered.max(axis=1)
    top, bottom = _crossings(profile) if profile.max() >= 0.5 else (0.0, float(len(covered)))
    return left, right, top, bottom


def _crossings(line: np.ndarray) -> tuple[float, float]:
    inside = np.flatnonzero(line >= 0.5)
    first, last = inside[0], inside[-1]
    before, after = line[first - 1] if first else 0.0, line[last + 1] if last + 1 < len(line) else 0.0
    return first + 0.5 - (line[first] - 0.5) / (line[first] - before), last + 0.5 + (line[last] - 0.5) / (line[last] - after)
