"""RANDOM NUMBERS -> TEXTURES: a street-like background and the grain of surfaces, both without seams, so that a camera can pan on."""

import numpy as np
from jaxtyping import Float32

Texture = Float32[np.ndarray, "rows columns"]
SOFTNESS_PX = 0.6  # as a lens blurs: a texture sharper than its pixels would flicker when it moves by parts of a pixel


def background(rng: np.random.Generator, width: int, height: int, horizon: float) -> Texture:
    """Intensities in [0.04, 1]: sky, buildings with windows, road with marks, poles, and noise on all scales."""
    rows, columns = _power_of_two(height * 1.5), _power_of_two(width * 1.5)
    image = np.empty((rows, columns))
    line = int(horizon)
    image[:line] = rng.uniform(0.45, 0.9)
    image[line:] = rng.uniform(0.15, 0.45)
    image[rows - (rows - height) // 2 :] = image[0, 0]  # above the top, where the texture repeats, is sky again
    for _ in range(rng.integers(4, 12)):
        _building(image, rng, line, width)
    for _ in range(rng.integers(2, 10)):  # marks and kerbs
        y, thickness = rng.integers(line, height + 8), rng.integers(1, 4)
        shade, period, duty = rng.uniform(0.1, 0.95), rng.integers(16, 60), rng.uniform(0.3, 1.2)
        across = (np.arange(columns) + rng.integers(period)) % period < duty * period
        image[y : y + thickness, across] = shade
    for _ in range(rng.integers(2, 8)):  # poles and trunks
        x, thickness = rng.integers(columns), rng.integers(1, 5)
        image[max(0, line - rng.integers(10, 60)) : line + rng.integers(2, 16), x : x + thickness] = rng.uniform(0.05, 0.6)
    noise = _noise(rng, rows, columns, 1.1)
    image *= np.exp(rng.uniform(0.04, 0.2) * noise)
    return np.clip(_soften(image, SOFTNESS_PX), 0.04, 1).astype(np.float32)


def grain(rng: np.random.Generator) -> Texture:
    """Noise around 0 of unit deviation, a little smoother than white."""
    return _soften(_noise(rng, 64, 64, 0.7), 0.8).astype(np.float32)


def _building(image: np.ndarray, rng: np.random.Generator, line: int, width: int) -> None:
    columns = image.shape[1]
    left, wide, high = rng.integers(columns), rng.integers(width // 10 + 2, width // 2 + 3), rng.integers(line // 4 + 1, line + 1)
    across = (left + np.arange(wide)) % columns
    image[line - high : line + 3, across] = rng.uniform(0.12, 0.7)
    step_x, step_y, shade = rng.integers(6, 16), rng.integers(7, 18), rng.uniform(0.05, 0.9)
    for y in range(line - high + 3, line - 4, step_y):
        for x in range(3, wide - 4, step_x):
            image[y : y + step_y // 2, across[x : x + step_x // 2]] = shade


def _noise(rng: np.random.Generator, rows: int, columns: int, slope: float) -> np.ndarray:
    """Noise with an amplitude spectrum of 1 / frequency^slope, deviation 1, periodic."""
    vertical, horizontal = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None]
    frequency = np.hypot(vertical, horizontal)
    frequency[0, 0] = np.inf
    values = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((rows, columns))) / frequency**slope, (rows, columns))
    return values / values.std()


def _soften(image: np.ndarray, deviation_px: float) -> np.ndarray:
    vertical, horizontal = np.fft.fftfreq(image.shape[0])[:, None], np.fft.rfftfreq(image.shape[1])[None]
    response = np.exp(-2 * (np.pi * deviation_px) ** 2 * (vertical**2 + horizontal**2))
    return np.fft.irfft2(np.fft.rfft2(image) * response, image.shape)


def _power_of_two(side: float) -> int:
    return 1 << int(np.ceil(np.log2(max(side, 32))))
