"""The silo agent: a trainer that sees the data and nothing else, and a guard that releases what the contract allows."""
