"""First-order Per-FedAvg trains a common model from which one gradient step leads to a silo's own.

Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach", NeurIPS 2020, Algorithm 1 with the Hessian left out (Section 5). After training every silo is
handed the common model once more, takes its step, and sends nothing but a loss.
"""

from fedsilo.methods.per_fedavg.declaration import PerFedAvg

__all__ = ["PerFedAvg"]
