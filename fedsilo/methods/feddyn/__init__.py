"""FedDyn is federated learning with dynamic regularisation.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR
2021, Algorithm 1. A silo's memory h_k, the sum of its theta_k - w, takes the place of the paper's gradients: at a
minimum of the silo's regularised risk, the gradient of its own risk is -alpha times the new h_k.

The loss has `alpha` times a linear term from the silo's memory and half the squared norm; the aggregator adds the
mean memory of all silos to the mean of the round's silos. `variant: released` asks silos for their sizes in an
additional first round; its pull to zero is weight decay, and `gradientClip` is of loss and linear term, otherwise
of the whole regularised loss. BatchNorm's statistics are averaged, without memory, since a step could make a
variance negative.

The paper trains without momentum, which is 0.9 by default here: set `momentum: 0`.
"""

from fedsilo.methods.feddyn.declaration import FedDyn

__all__ = ["FedDyn"]
