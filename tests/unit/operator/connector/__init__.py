"""The connector of an institution's own cluster."""
