"""Ratio Loss gives classes more weight in the silos' cross-entropy, the fewer examples of them there seem to be.

Wang, Xu, Wang, Zhu, "Addressing Class Imbalance in Federated Learning", AAAI 2021. The aggregator trains the model on a
small public dataset with as many examples of each class, and learns from what that changes in the classifier.
"""

from fedsilo.methods.ratio_loss.declaration import RatioLoss

__all__ = ["RatioLoss"]
