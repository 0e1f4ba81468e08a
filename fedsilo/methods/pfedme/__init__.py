"""pFedMe personalises models by Moreau envelopes.

Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1. A silo takes
steps on F_k(w) = min over theta of f_k(theta) + (lambda / 2) ||theta - w||^2 (eq. 3), whose gradient is
lambda (w - theta) (eq. 4); theta, which it finds by K steps on one batch, is its own model.

lambda is `proximalWeight` and K `personalSteps`; the aggregator mixes the mean with the last model by `beta`. Each
batch of `localEpochs` is one of the paper's R local rounds. The step towards the silo's own model follows the
schedule, with clipping.
"""

from fedsilo.methods.pfedme.declaration import PFedMe

__all__ = ["PFedMe"]
