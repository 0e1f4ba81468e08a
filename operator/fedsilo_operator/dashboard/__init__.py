"""The dashboard of a cluster: its jobs as the operator's caches have them, for those who may list them."""
