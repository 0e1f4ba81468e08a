"""What runs in a silo: the task runner, its volume, private state, and what may leave it. No HTTP, no key."""
