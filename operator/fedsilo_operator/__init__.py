"""The operator reconciles FederatedJobs and SiloAgents on Kubernetes.

`job` and `silo` are the two controllers, each of `observe`, `assess` and `reconcile`; `diagnosis` explains pods,
`workloads` has the child objects as data, `cluster` the eight verbs by which the cluster is reached, `runtime` what
controllers run on, `dashboard` the web page. `gateway` is a process of its own, the hub's side of institutions outside
of the cluster, and `connector` that of an institution's own cluster, beside its silo controller. `reasons` has every
reason of a condition.
"""
