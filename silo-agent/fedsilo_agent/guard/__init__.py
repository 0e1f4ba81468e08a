"""The guard: has the key and the network, never the data."""
