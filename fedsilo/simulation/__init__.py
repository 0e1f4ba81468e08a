"""All of a job in one process: both halves of any method, in memory, with the bytes of separate processes."""
