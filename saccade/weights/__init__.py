"""FILES AND NAMES <-> DETECTORS: our weights files, published checkpoints, shipped weights."""
