"""The state of pods and Jobs: what keeps them from running, how they ended, and what to do about it."""
