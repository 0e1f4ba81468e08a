"""The job controller reconciles FederatedJobs.

`observe` reads, `assess` interprets into one `state` (with `checks`, `silo_keys`, `participants`, `trust`, `decisions`
and `blockers`), and `reconcile` plans from that state alone (with `agents`, `aggregator`, `conditions` and `status`).
"""
