"""FedCM is federated averaging whose silos step along the mean change of the last round, too.

Xu, Wang, Wang, Yao, "FedCM: Federated Learning with Client-level Momentum", 2021, Algorithm 2: a silo's step is
-eta (alpha g + (1 - alpha) Delta), where Delta is the mean of (w - w_k) / (eta K) over the silos of the last round.
"""

from fedsilo.methods.fedcm.declaration import FedCM

__all__ = ["FedCM"]
