"""FedConcat trains encoders in clusters of similar silos, and then concatenates them.

Diao, Li, He, "Exploiting Label Skews in Federated Learning with Model Concatenation", AAAI 2024: stage 1 clusters
the silos by label distribution, stage 2 is FedAvg inside each cluster, stage 3 trains one linear classifier on the
concatenated features of all encoders, which stay fixed.

The paper's variant with Laplace noise on label distributions is not here: its epsilon would bound the counts
alone, while the models tell of the same examples. With `spec.privacy.differentialPrivacy` counts and models have
noise that budgets count (docs/differential-privacy.md).
"""

from fedsilo.methods.fedconcat.declaration import FedConcat

__all__ = ["FedConcat"]
