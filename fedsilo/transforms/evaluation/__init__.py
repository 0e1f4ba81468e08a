"""Scores of models where their examples are."""
