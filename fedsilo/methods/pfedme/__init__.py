"""pFedMe personalises models by Moreau envelopes.

Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1. A silo takes
steps on F_k(w) = min over theta of f_k(theta) + (lambda / 2) ||theta - w||^2 (eq. 3), whose gradient is
lambda (w - theta) (eq. 4); theta, which it finds by K steps on one batch, is its own model.
"""

from fedsilo.methods.pfedme.declaration import PFedMe

__all__ = ["PFedMe"]
