"""A grid of runs in this process: what each is given, its directory, and the table and plot that they end with."""
