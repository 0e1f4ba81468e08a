"""What the commands for a cluster share: kubectl, and how a job and its silos are described."""
