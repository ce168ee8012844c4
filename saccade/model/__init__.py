"""Frames + state + dt -> predictions + state. torch only; knows no files, boxes or data sets."""
