"""SOURCE -> A PAGE IN THE BROWSER: events, boxes and tracks at the screen's rate, the detector's rate as a slider."""

SLOWEST_HZ, FASTEST_HZ = 1.0, 1000.0  # of the slider
