"""FedBR reduces the bias of local learning with pseudo-data and a min-max contrast.

Guo, Tang, Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias Reduction", ICML
2023, Algorithm 1. The released code averages raw images centrally and shares the means; here no average of raw inputs
leaves a silo. Each silo makes its pseudo-data of its own examples, or mixes them into means of noise that it is given.
"""

from fedsilo.methods.fedbr.declaration import FedBR

__all__ = ["FedBR"]
