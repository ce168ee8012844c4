"""NAME -> EVENTS as they come: files at any speed, pipes, TCP, UDP, cameras, a simulated street; and back: `saccade send`."""
