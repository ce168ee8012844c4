"""Recordings that come with saccade, made by us (examples/make_sample.py)."""

from pathlib import Path

STREET = Path(__file__).parent / "street.h5"
