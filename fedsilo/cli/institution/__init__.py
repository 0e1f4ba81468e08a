"""The commands of `fedsilo silo`, one module for each, with `add_arguments(parser)` and `run(args) -> int`."""
