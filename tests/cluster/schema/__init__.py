"""The CustomResourceDefinitions, admission policies and roles, on a real API server without nodes."""
