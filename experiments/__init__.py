"""The tables of the paper, one file each: what it reports, what to run, and ours beside it."""
