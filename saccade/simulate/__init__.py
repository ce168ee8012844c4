"""SCENES -> EVENTS + EXACT BOXES at any time."""
