"""Models in fewer bytes on their way."""
