"""DANN trains features from which a discriminator cannot tell which silo an example is from.

Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016, with silos as domains, as in FedBR's released
code: the discriminator has an output for each silo and is averaged with the model.

The aggregator takes uniform means of model and discriminator. The task has the silo's number, its place among the
job's silos.
"""

from fedsilo.methods.dann.declaration import DANN

__all__ = ["DANN"]
