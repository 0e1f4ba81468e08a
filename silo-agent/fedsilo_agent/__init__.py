"""The silo agent: a trainer that sees data and nothing else, and a guard that lets out what the contract allows."""
