"""What fedsilo does on a GPU, measured by one command: see `python -m benchmarks.gpu --help`."""
