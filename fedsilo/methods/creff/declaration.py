"""Declaration of CReFF with its settings and what silos send."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.creff.config import BIAS, WEIGHT, CReFFConfig
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Sums
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.methods.traits import StateTraits, TrainingTraits


class CReFF(Method):
    """Declaration of CReFF, classifier re-training on federated features."""

    name = "creff"
    title = "Classifier re-training with federated features"
    use_when = "labels are long-tailed, rounds are many, and covariances may not leave a silo"
    citation = (
        "X. Shang, Y. Lu, G. Huang, H. Wang. Federated Learning on Heterogeneous and Long-Tailed Data via Classifier "
        "Re-Training with Federated Features. IJCAI 2022."
    )
    keeps = StateTraits("the model, the re-trained classifier and the federated features")
    Config = CReFFConfig
    config: CReFFConfig
    training = TrainingTraits(accepts_trainer=True)

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model, and per class the mean gradient of the head."""
        return {"train": Step((Payload("model"), *gradient_payloads(self.config.released)), (LOSS,))}

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One phase of `spec.training.rounds` rounds."""
        return (Phase("train", self.spec.training.rounds, "train"),)

    @override
    def server(self) -> ServerHalf[Sums]:
        """Features and head at the aggregator."""
        from fedsilo.methods.creff.server import CReFFServer

        return CReFFServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Gradients of the head first, then local training of the model."""
        from fedsilo.methods.creff.silo import GradientTraining

        return {"train": GradientTraining(self.config.released, self.augments)}

    @property
    def augments(self) -> bool:
        """Whether images behind real gradients are augmented: in the released form, unless the job says otherwise."""
        if self.config.dsa is not None:
            return self.config.dsa
        return self.config.released and self._has_images

    @property
    def _has_images(self) -> bool:
        return len(self.spec.data.input_shape) == 3

    @override
    def check(self) -> list[Finding]:
        """DSA is of images, and of the released form's draws."""
        field, shape = "spec.method.config.dsa", self.spec.data.input_shape
        if not self.config.dsa:
            return []
        if not self.config.released:
            problem = "has no meaning in variant: paper, whose gradients are of all examples"
            return [(field, True, problem, "write variant: released, or remove it")]
        if not self._has_images:
            problem = f"augments images, and spec.data.inputShape has {len(shape)} dimension(s)"
            return [(field, True, problem, "remove it")]
        return []


def gradient_payloads(released: bool) -> tuple[Payload, ...]:
    """One gradient per class; that of the bias only in the released form, since eq. 6 has no use for it."""
    weight = Payload("averaged_gradients", WEIGHT, ("classes", "feature"), per_class=True)
    bias = Payload("averaged_gradients", BIAS, ("classes",), per_class=True)
    return (weight, bias) if released else (weight,)
