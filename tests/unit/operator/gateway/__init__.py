"""What the gateway decides, over a cluster in memory."""
