"""Models, local training, evaluation and seeding.

`seeding` and `catalogue` import no torch, so that the command line and the operator can use them; everything
else here is the PyTorch side of a silo and of an aggregator that learns.

`models` is encoder and classifier, `training` the local loop with its `optimizers`, `custom_training` a job's own
training and `confinement` what surrounds it, `private_training` the steps with noise, `company` whether a network
keeps examples apart.
"""
