"""Attacks on a live gateway."""
