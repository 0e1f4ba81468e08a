"""Data of this project, as `python:` loaders of fedsilo."""
