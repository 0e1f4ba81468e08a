"""Benchmarks of the gateway: rate, memory, and how soon it tells silos news."""
