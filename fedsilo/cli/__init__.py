"""The `fedsilo` command: one module per sub-command, imported only when it is called."""
