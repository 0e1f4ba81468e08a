"""FedLC is federated averaging with logits calibrated by the silo's own label distribution.

Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022, Section 4. The
printed loss leaves the label out of the denominator and has no lower bound; what is minimised here is the
cross-entropy of z_c - tau n_c^(-1/4) over all classes, as in the codes in circulation.

Classes that the silo lacks take no part in the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.restricted_softmax import class_counts, shifted_loss
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State

MISSING_CLASS_COUNT = 1e-8
"""Count of a class that the silo lacks, as in the released code."""


class FedLCConfig(MethodConfig):
    """Settings of FedLC in a job's `spec.method.config`."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: classes that the silo lacks take no part in the softmax. released: they count as 1e-8 "
        "examples [paper, Section 4, in its usable form; FL-bench's released code].",
    )
    tau: float = Field(
        default=1.0, ge=0, description="Margin of a class with one example [FL-bench; FedDecorr: 0.1]."
    )


class FedLC(FedAvg):
    """Declaration of FedLC, which differs from FedAvg in the silos' loss."""

    name = "fedlc"
    title = "Federated averaging with logits calibration"
    citation = (
        "J. Zhang, Z. Li, B. Li, J. Xu, S. Wu, S. Ding, C. Wu. Federated Learning with Label Distribution Skew via "
        "Logits Calibration. ICML 2022."
    )
    Config = FedLCConfig
    config: FedLCConfig

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """w_k <- E epochs of SGD on the cross-entropy of z_c - m_c."""

        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            margin = margins(class_counts(silo), self.config)
            return train_model(silo, task, private, loss=shifted_loss(silo, -margin))

        return {"train": train}


def margins(counts: np.ndarray, config: FedLCConfig) -> np.ndarray:
    """(C,) float32 margins m_c = tau n_c^(-1/4); infinite for a missing class, which masks its logit."""
    if config.variant == "released":
        counts = np.where(counts > 0, counts, MISSING_CLASS_COUNT)
    held = counts > 0
    margin = np.full(len(counts), np.inf)
    margin[held] = config.tau * counts[held] ** -0.25
    return margin.astype(np.float32)
