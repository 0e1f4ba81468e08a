"""What every process that speaks HTTP shares: sockets, large bodies, refusals, probes and the log."""
