"""What a job waits for, computed once: the command line and the dashboard put the same facts into their own words."""
