"""SOURCE -> A PAGE IN THE BROWSER: events, boxes and tracks, the rate as a slider; the same for Foxglove and ROS 2."""

SLOWEST_HZ, FASTEST_HZ = 1.0, 1000.0  # of the slider
