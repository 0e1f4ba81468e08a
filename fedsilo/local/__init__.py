"""Running a manifest on one machine, without a cluster."""
