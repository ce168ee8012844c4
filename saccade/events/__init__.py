"""FILE, CAMERA OR SIMULATOR -> EVENTS. numpy and numba only."""
