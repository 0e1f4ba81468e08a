"""The round engine and the task runner: a job as a state machine over directories. No HTTP, no Kubernetes."""
