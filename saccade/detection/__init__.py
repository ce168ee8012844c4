"""PREDICTIONS <-> BOXES: decode, matching, loss, tracks."""
