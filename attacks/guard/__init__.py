"""Attacks on a guard, by its aggregator and by its trainer."""
