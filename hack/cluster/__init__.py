"""A real Kubernetes on one machine, for the tests: built from Go modules and Debian packages, without a registry."""
