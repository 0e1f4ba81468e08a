"""Tools that develop and test fedsilo and are no part of it: Kubernetes on one machine, images without a registry."""
