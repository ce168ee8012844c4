"""A trained detector at work: runtimes that compute a step, files that other runtimes load, and the live stream."""
