"""Pieces that several methods are made of."""
