"""A sample of the fault campaign, and defects that it must find."""
