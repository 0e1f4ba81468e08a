"""Attacks on an aggregator."""
