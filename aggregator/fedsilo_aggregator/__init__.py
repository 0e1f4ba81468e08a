"""The aggregator is an HTTPS service over the round engine and its durable directory.

`http` and `bodies` are the service, `rounds` drives the engine, `startup` reads what the process is given, and
`report` writes the aggregator's fields of a job's status.
"""
