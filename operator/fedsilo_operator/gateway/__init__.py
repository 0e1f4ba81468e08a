"""The gateway is the one address at which institutions outside of the cluster reach the hub."""
