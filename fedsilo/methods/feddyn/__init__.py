"""FedDyn is federated learning with dynamic regularisation.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR
2021, Algorithm 1. A silo's memory h_k, the sum of its theta_k - w, takes the place of the paper's gradients: at a
minimum of the silo's regularised risk, the gradient of its own risk is -alpha times the new h_k.
"""

from fedsilo.methods.feddyn.declaration import FedDyn

__all__ = ["FedDyn"]
