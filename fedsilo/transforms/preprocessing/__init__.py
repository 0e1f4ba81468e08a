"""Numbers by which all silos prepare values alike."""
