"""A model of the protocol: its parties over a simulated network, disk and clock, and what must always hold."""
