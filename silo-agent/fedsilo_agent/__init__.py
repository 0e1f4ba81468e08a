"""Trainer and guard of a silo: one sees the data and nothing else, the other releases what the contract allows."""
