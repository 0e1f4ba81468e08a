"""What the commands for a cluster stand on: kubectl, and what a job and its silos say of themselves."""
