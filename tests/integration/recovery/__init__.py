"""A sample of the campaign of kills."""
