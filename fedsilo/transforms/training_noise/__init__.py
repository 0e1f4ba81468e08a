"""Noise that the trainer adds."""
