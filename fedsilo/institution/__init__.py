"""A silo on a machine without Kubernetes: it follows its hub, decides, and runs guard and trainer as processes.

`serving` is the process: it follows the hub, and `executor` looks after one `agent_run` for each job, which `assess`
interprets and `processes` runs. `silo_file` and `approvals` are what people write, `directory` is where all of it
lies.
"""
