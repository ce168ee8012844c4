"""RECORDINGS + LABELS -> BATCHES: gen1, 1 Mpx, DSEC, synthetic; clips, lanes, augmentation."""
