"""Noise that the guard adds to the change of a whole silo."""
