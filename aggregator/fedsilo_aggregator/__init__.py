"""The aggregator: an HTTPS service over the round engine and its durable directory."""
