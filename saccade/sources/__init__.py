"""NAME -> EVENTS as they come: files at any speed, pipes, TCP, UDP, cameras, ROS 2, a simulated street; and back: `saccade send`."""
