"""Sub-commands of the `fedsilo` command: one module each, imported only when the sub-command is called."""
