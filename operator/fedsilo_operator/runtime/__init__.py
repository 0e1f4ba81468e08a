"""What every controller runs on: caches, a work queue, a loop, and leader election."""
