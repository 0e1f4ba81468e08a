"""What a silo says and does about its part in a job, as pure functions of what the place has observed in which it runs.

A place brings what its guard and its trainer do, and carries out which of them are to run.
"""
