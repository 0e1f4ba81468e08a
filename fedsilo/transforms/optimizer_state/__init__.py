"""The optimiser's state that a silo keeps from round to round."""
