"""The operator reconciles FederatedJobs and SiloAgents on Kubernetes."""
