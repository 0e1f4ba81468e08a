"""Kills of what stands between hub and institution, at random moments of a job, and hubs that are gone for a while."""
