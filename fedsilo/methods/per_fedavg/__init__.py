"""First-order Per-FedAvg trains a common model from which one gradient step leads to a silo's own.

Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach", NeurIPS 2020, Algorithm 1 with the Hessian left out (Section 5). After training every silo is
handed the common model once more, takes its step, and sends nothing but a loss.

A step goes by the gradient where a step of rate `innerRate` leads. A silo's own model is the given model after one
step on one batch, in every round in which the silo takes part. After training all silos make it from the job's
last model, in round `rounds` + 1, in which they send only their loss. An odd number of batches is made even by one
of the next pass.
"""

from fedsilo.methods.per_fedavg.declaration import PerFedAvg

__all__ = ["PerFedAvg"]
