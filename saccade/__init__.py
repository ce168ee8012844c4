"""Object detection with event cameras, trained once, run at any rate."""
