"""Offline verification of what a job has left, by someone who holds nothing but public keys."""
