"""Recordings and weights that come with saccade, made by us (examples/make_sample.py, `saccade train`)."""

from pathlib import Path

FOLDER = Path(__file__).parent
STREET = FOLDER / "street.h5"


def shipped_weights() -> dict[str, Path]:
    """Weights by name: nano for nano.safetensors."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.safetensors"))}
