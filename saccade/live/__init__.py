"""SOURCE -> A PAGE IN THE BROWSER: events, boxes and tracks at the screen's rate, the detector's rate as a slider."""
