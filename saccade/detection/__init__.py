"""PREDICTIONS <-> BOXES: stand-in until branch detection is merged."""
