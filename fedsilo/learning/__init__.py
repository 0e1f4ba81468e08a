"""Models, local training, evaluation and seeding.

`seeding` and `catalogue` import no torch, so that the command line and the operator can use them; everything
else here is the PyTorch side of a silo and of an aggregator that learns.
"""
