"""Whether a silo's data fit a job, found before anything is trained: pure functions of arrays, job and policy."""
