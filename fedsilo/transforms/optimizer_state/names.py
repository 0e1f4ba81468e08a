"""Names of what a silo keeps of its optimiser."""

PREFIX = "optimizer."
"""Begins the names of these trees and values in a silo's private state."""
