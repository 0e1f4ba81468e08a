"""FedProto has silos keep their models and share the mean features of their classes, which pull the models together.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI
2022.
"""

from fedsilo.methods.fedproto.declaration import FedProto

__all__ = ["FedProto"]
