"""EVENTS -> DETECTIONS, live: intake, stepping, overload, counters, saved state."""
