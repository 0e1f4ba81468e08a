"""The aggregator is an HTTPS service over the round engine and its durable directory."""
