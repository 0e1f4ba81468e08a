"""Declaration of FedNova, which says what its silos send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from typing_extensions import override

from fedsilo.api.training import TrainingSpec
from fedsilo.methods.components.local_steps import STEPS, limits_of_steps
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.fednova.config import BY_NORMALIZER, NORMALIZER, FedNovaConfig
from fedsilo.methods.interface import ServerHalf, SiloStep
from fedsilo.methods.method import averaging_of
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.step import LOSS, Metric, Payload, Step
from fedsilo.methods.traits import SGD, UNRESTRICTED_TASKS, StateTraits, TrainingTraits
from fedsilo.wire.combine import BlockMean


class FedNova(OneModel):
    """Declaration of FedNova, whose silos send tau_k and a_k beside their models."""

    name = "fednova"
    title = "Normalised averaging"
    use_when = "silos take different numbers of local steps in a round"
    citation = (
        "J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor. Tackling the Objective Inconsistency Problem in "
        "Heterogeneous Federated Optimization. NeurIPS 2020."
    )
    keeps = StateTraits("the model, and its velocity where the server has momentum")
    tasks = UNRESTRICTED_TASKS
    Config = FedNovaConfig
    config: FedNovaConfig

    @property
    @override
    def training(self) -> TrainingTraits:
        """Steps along the gradient; momentum would carry those of earlier rounds into a_k."""
        momentum = self.spec.training.optimizer.momentum
        return TrainingTraits(
            SGD, refuses_kept_state="whose a_k counts the gradients of one round" if momentum else None
        )

    @override
    def steps(self) -> Mapping[str, Step]:
        """The model, tau_k and a_k, from which d_k follows."""
        figures = (Metric(name, required=True) for name in (STEPS, NORMALIZER))
        limits = partial(limits_of_figures, self.spec.training, self.config)
        payload = Payload("model", combine=BlockMean(BY_NORMALIZER))
        return {"train": Step((payload,), (LOSS, *figures), limits)}

    @property
    @override
    def reads(self) -> type[Mean]:
        """Sums where models are averaged by samples, as figures are: tau_eff is a mean by the same weights."""
        return Sums if averaging_of(self) == "samples" else Updates

    @override
    def check(self) -> list[tuple[str, object, str, str]]:
        """That a step does not lead past the given model."""
        faults: list[tuple[str, object, str, str]] = []
        optimizer, mu = self.spec.training.optimizer, self.config.mu
        if mu * optimizer.learning_rate >= 1:
            problem = f"times learning rate {optimizer.learning_rate:g} is 1 or more: steps overshoot"
            faults.append(("spec.method.config.mu", mu, problem, "lower one of them"))
        return faults

    @override
    def check_sums(self) -> list[tuple[str, object, str, str]]:
        """Sums are of silos that count by their samples."""
        if self.reads is Sums:
            return super().check_sums()
        problem = "averages models otherwise than sums average figures, which is by samples"
        fault = ("spec.aggregation.weights", averaging_of(self), problem, "write samples")
        return [*super().check_sums(), fault]

    @override
    def server(self) -> ServerHalf[Any]:
        from fedsilo.methods.fednova.server import FedNovaServer

        return FedNovaServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """SGD on the loss and the proximal term, and a_k."""
        from fedsilo.methods.fednova.silo import train

        return {"train": partial(train, config=self.config)}


def limits_of_figures(
    training: TrainingSpec, config: FedNovaConfig, samples: int, metrics: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Ranges of tau_k and a_k: the first step counts for 1, and no gradient for more than with all its momentum.

    That is 1 / (1 - rho); in the released code, in which it counts twice where there is a proximal term, 1 more.
    """
    each = 1 / (1 - training.optimizer.momentum)
    if config.variant == "released" and config.mu:
        each += 1
    each *= 1 + 1e-9  # a sum of many roundings
    return {**limits_of_steps(training, samples, metrics), NORMALIZER: (1.0, metrics[STEPS] * each)}
