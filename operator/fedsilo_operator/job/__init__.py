"""The job controller reconciles FederatedJobs."""
