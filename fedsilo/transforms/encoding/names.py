"""Names of what is sent as parts, and of what a silo keeps of that."""

PREFIX = "communication."
"""Begins the names of trees that hold parts of others, and of what updates have left out so far."""
