"""ANSWERS -> NUMBERS: protocols, average precision, breakdowns, mistakes."""
