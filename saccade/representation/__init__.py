"""EVENTS -> FRAMES at any rate: windows, histogram kernel, canvas."""
