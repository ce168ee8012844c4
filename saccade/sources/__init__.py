"""NAME -> EVENTS as they come: files at any speed, pipes, TCP, UDP, cameras."""
