"""WEIGHTS + RECORDINGS -> ANSWERS: which windows are run, in which order, kept where."""
