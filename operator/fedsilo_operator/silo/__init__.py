"""The silo controller reconciles SiloAgents, and a silo's key.

`observe` reads; `component` and `admission` say what Jobs, pods and Silo are, of which `fedsilo.silo.agent` makes a
`state` as on a machine; `reconcile` plans (with `children` and `status`). `signing_key` is a silo's key, and `budgets`
what is spent.
"""
