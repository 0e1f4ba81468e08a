"""FedCM is federated averaging whose silos step along the mean change of the last round, too.

Xu, Wang, Wang, Yao, "FedCM: Federated Learning with Client-level Momentum", 2021, Algorithm 2: a silo's step is
-eta (alpha g + (1 - alpha) Delta), where Delta is the mean of (w - w_k) / (eta K) over the silos of the last round.

Downloads are twice the model: the mean step goes with it, a uniform mean. Without momentum `alpha` makes the steps
of the first round short, as there is no direction yet: at a rate that suits momentum it learns slowly. BatchNorm's
statistics are averaged, without a direction, since a step could make a variance negative.
"""

from fedsilo.methods.fedcm.declaration import FedCM

__all__ = ["FedCM"]
