"""The job controller: FederatedJobs."""
