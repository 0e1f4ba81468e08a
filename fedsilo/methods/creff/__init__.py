"""CReFF re-trains the classifier at the aggregator on federated features.

Shang, Lu, Huang, Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features", IJCAI 2022, Algorithm 1. Silos send their model and, for each class, the mean gradient of the
re-trained classifier; the aggregator moves its features until they have the same gradients.

With `dsa`, the images behind each of ten draws per class go through one random augmentation (color, crop, cutout,
flip, scale or rotation, with the released code's ranges) after preprocessing.

The paper trains without momentum, which is 0.9 by default here: set `momentum: 0`.
"""

from fedsilo.methods.creff.declaration import CReFF

__all__ = ["CReFF"]
