"""What runs in a silo: what it admits, the task runner, its volume, private state, and what may leave it. No HTTP.

`offer`, `admission` and `decision` are what the silo says to a job, `policy`, `reply_limits` and `release` what may
leave it, `runner` the trainer's side of a round, `volume` the directory that guard and trainer share, `private_state`
what stays between rounds. `agent` is the state machine of a SiloAgent, the same wherever guard and trainer run.
"""
