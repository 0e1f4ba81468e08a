"""What runs at the aggregator: a job's workflow, and its rounds as a state machine over a directory. No HTTP."""
