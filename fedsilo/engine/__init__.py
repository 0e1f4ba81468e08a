"""What runs at the aggregator: a job's workflow, and its rounds as a state machine over a directory. No HTTP.

`workflow` is what a job does as functions of its state, `round` the state of an open round, `round_engine` the state
machine, `exchange` and `opening` the open exchange, `store` the directory, `status` what people see, `result` what
stays.
"""
