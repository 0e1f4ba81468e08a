"""FedBE is federated averaging whose average learns from a Bayesian ensemble.

Chen and Chao, "FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning", ICLR 2021, Algorithm 1. A
distribution of models is fitted to those of the silos; models drawn from it answer beside them on unlabelled public
examples.

The average learns the sharpened mean probabilities, with stochastic weight averaging. The student is in evaluation
mode and keeps the averaged BatchNorm statistics; one teacher at a time is in memory beside it. The distribution is
of updates of norm one, as in the released code.
"""

from fedsilo.methods.fedbe.declaration import FedBE

__all__ = ["FedBE"]
