"""FedNova is normalised averaging of silos that take different numbers of local steps.

Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, eq. 6.
"""

from fedsilo.methods.fednova.declaration import FedNova

__all__ = ["FedNova"]
