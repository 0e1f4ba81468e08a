"""Ratio Loss gives classes more weight in the silos' cross-entropy, the fewer examples of them there seem to be.

Wang, Xu, Wang, Zhu, "Addressing Class Imbalance in Federated Learning", AAAI 2021. The aggregator trains the model on a
small public dataset with as many examples of each class, and learns from what that changes in the classifier.

From round 2 on the class weights act. Each class has as many public examples as the rarest (in the released code
silos send them), and copies of the model learn them as a silo would in that round. A class without a public
example, or with a single one and a network with BatchNorm, weighs 1, which the aggregator's log says. Loss and
ratios are tested against the released code's numbers for given places in the classifier; the choice of places is
not.
"""

from fedsilo.methods.ratio_loss.declaration import RatioLoss

__all__ = ["RatioLoss"]
