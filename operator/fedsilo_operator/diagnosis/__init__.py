"""What pods and Jobs do: how they stand, what keeps them from running, how they ended, and what to do about it."""
