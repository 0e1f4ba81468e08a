"""The silo controller reconciles SiloAgents, and a silo's key."""
