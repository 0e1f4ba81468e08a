"""What every controller runs on: caches, a queue, a loop, and the lease that says who leads."""
