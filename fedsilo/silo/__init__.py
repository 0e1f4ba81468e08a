"""What runs in a silo: what it admits, the task runner, its volume, private state, and what may leave it. No HTTP."""
