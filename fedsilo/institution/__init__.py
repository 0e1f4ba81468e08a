"""A silo on a machine without Kubernetes: it follows its hub, decides, and runs guard and trainer as processes."""
