"""A round's updates: where they lie, and sums over them in about one model of memory."""
