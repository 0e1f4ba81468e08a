"""Sums over silos of which the aggregator sees no summand."""
