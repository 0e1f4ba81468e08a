"""FedNova is normalised averaging of silos that take different numbers of local steps.

Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, eq. 6.

The aggregator divides each silo's change by what its steps count for, times the mean of that; the server may have
momentum, and silos a proximal term `mu` as in fedprox. d_k follows from the model, `steps` and `normalizer` (tau_k
and a_k). The proximal gradient passes through the momentum, as in the released code. With `mu` the server moves by
the mean of tau_k, otherwise by that of a_k. Refused are a tau_k beyond the job's plan for the stated samples, an
a_k above tau_k / (1 - momentum), and `optimizer.state: keep`, since a_k counts the gradients of one round.
BatchNorm's statistics are averaged as they are, since a step could make a variance negative.
"""

from fedsilo.methods.fednova.declaration import FedNova

__all__ = ["FedNova"]
