"""Updates of a round: where they lie, and sums over them in about one model of memory."""
