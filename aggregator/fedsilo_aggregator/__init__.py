"""The aggregator: an HTTPS service and a durable store round the engine's rounds."""
