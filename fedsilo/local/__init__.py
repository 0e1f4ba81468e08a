"""Running a manifest on one machine, without a cluster.

`run` starts the processes, forked by `fork_server` and watched by `supervision`; `workdir` is the directory of a run,
`in_process` runs the simulation instead, and `sweep` many variations of a manifest in turn.
"""
