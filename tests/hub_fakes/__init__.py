"""A hub in memory, for tests of what an institution asks and follows."""
