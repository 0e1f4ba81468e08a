"""Attacks on secure sums by the aggregator: what it learns of one silo from all that real guards answer."""
