"""Faults of disks, processes and networks, injected at every durable step of the real processes."""
