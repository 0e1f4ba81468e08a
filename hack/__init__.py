"""What develops and tests fedsilo and is no part of it: a Kubernetes on one machine, and images without a registry."""
