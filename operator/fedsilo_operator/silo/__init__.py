"""The silo controller: SiloAgents, and a silo's key."""
