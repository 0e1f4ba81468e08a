"""The guard has the silo's key and the network, never the data."""
