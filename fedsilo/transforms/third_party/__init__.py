"""Transforms of other packages."""
