"""FedBR reduces the bias of local learning with pseudo-data and a min-max contrast.

Guo, Tang, Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias Reduction", ICML
2023, Algorithm 1. The released code averages raw images centrally and shares the means; here no average of raw inputs
leaves a silo. Each silo makes its pseudo-data of its own examples, or mixes them into means of noise that it is given.

Pseudo-data have soft labels, and the contrast goes through a projection, of which the aggregator takes a uniform
mean as of the model; with `mixup` batches are mixed first. Means are of a silo's own examples, each in one of
them, drawn anew from the job's seed and never stored; the proxies of `pseudoData: mixture` contain no data.
Without `maxStep` the projection keeps its initial values.

The paper trains without momentum, which is 0.9 by default here: set `momentum: 0`.
"""

from fedsilo.methods.fedbr.declaration import FedBR

__all__ = ["FedBR"]
