"""FedProto has silos keep their models and share the mean features of their classes, which pull the models together.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI
2022.

The loss has `prototypeWeight` times the mean squared distance of features to their class's prototype; the
aggregator takes the mean of the silos' means of each class. `model.safetensors` has the prototypes
(`prototype/<class>`); silos always score their own models (docs/methods.md#personal-models), and a `testDataset`
scores nothing. All silos begin with the initial weights. A class without a prototype does not pull, and one that
no silo of a round sends keeps the last one. Means are those under the trained model (eq. 3); `map` takes them over
the features of every step, as that code does.
"""

from fedsilo.methods.fedproto.declaration import FedProto

__all__ = ["FedProto"]
