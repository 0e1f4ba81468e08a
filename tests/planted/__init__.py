"""Faults that are planted in a copy of the product, each of which the suite must notice."""
