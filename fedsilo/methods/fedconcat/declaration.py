"""Declaration of FedConcat with its settings, its stages, and what silos send in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from typing_extensions import override

from fedsilo.api.job import ModelSpec
from fedsilo.learning.local_steps import LocalSteps
from fedsilo.methods.components.local import PlainTraining
from fedsilo.methods.fedconcat.config import NOISY_KIND, FedConcatConfig, StagesConfig
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep
from fedsilo.methods.method import Method
from fedsilo.methods.models import JobModels, SharedModel
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import Scalar
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.methods.traits import PLAIN_TRAITS, StateTraits, TrainingTraits
from fedsilo.wire import ModelSignature

RELEASED_BATCHES = 3
"""Mini-batches of a silo in one round of stage 3, released code."""

RELEASED_WEIGHT_DECAY = 1e-5

CLASSIFY = Step(
    (
        Payload("model", "classifier.weight", ("classes", "stacked")),
        Payload("model", "classifier.bias", ("classes",)),
    ),
    (LOSS,),
)
"""The classifier on all features, (C, K d) and (C,)."""


class ConcatenationMethod(Method):
    """Base of FedConcat's two forms: encoders in clusters, then one classifier on all their features."""

    citation = (
        "Y. Diao, Q. Li, B. He. Exploiting Label Skews in Federated Learning with Model Concatenation. "
        "AAAI 2024."
    )
    keeps = StateTraits(
        "a model per cluster, the large classifier, and which silo is in which cluster",
        "features of its examples under the fixed encoders, in stage 3",
    )
    config: StagesConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """Whole models in stage 2, the large classifier in stage 3."""
        return {"train": Step((Payload("model"),), (LOSS,)), "classify": CLASSIFY}

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """The cluster's model, then the classifier on the fixed encoders' features."""
        from fedsilo.methods.fedconcat.silo import LinearProbe

        return {
            "train": PlainTraining(),
            "classify": LinearProbe(
                self.training.local_steps(self.spec, "classify"), self._classifier_weight_decay
            ),
        }

    @property
    @override
    def training(self) -> TrainingTraits:
        """Both stages train plainly; stage 3 has in the released form at most three mini-batches, in one pass."""
        plain = replace(PLAIN_TRAITS, accepts_trainer=False)
        if self.config.variant != "released":
            return plain
        few = LocalSteps(self.spec.training.examples_per_step, max_steps=RELEASED_BATCHES)
        return replace(plain, plans={"classify": few})

    @property
    def _classifier_weight_decay(self) -> float | None:
        given, released = self.config.classifier_weight_decay, self.config.variant == "released"
        return RELEASED_WEIGHT_DECAY if given is None and released else given

    @override
    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        """`stacked` = K d, the width of the concatenated features; K is in the task, and at most the job's."""
        most = self.config.clusters
        given = settings.get("clusters", most)
        clusters = given if isinstance(given, int) and 1 <= given <= most else most
        return {**super().dimensions(signature, settings), "stacked": clusters * signature.feature}

    @property
    @override
    def models(self) -> JobModels:
        """The job's encoder as often as there are clusters, side by side, and one classifier."""
        base = self.spec.model.model_dump(by_alias=True, mode="json", include={"name", "config"})

        def concatenated_spec(settings: Mapping[str, Scalar]) -> ModelSpec:
            return ModelSpec(name="concatenated", config={"encoders": settings["clusters"], "base": base})

        return JobModels(SharedModel(architecture=concatenated_spec))

    @override
    def check(self) -> list[tuple[str, object, str, str]]:
        """Rounds that add up, and no more clusters than silos."""
        faults: list[tuple[str, object, str, str]] = []
        rounds, stated = self.config.encoder_rounds + self.config.classifier_rounds, self.spec.training.rounds
        if rounds != stated:
            problem = f"is not encoderRounds + classifierRounds = {rounds}"
            faults.append(("spec.training.rounds", stated, problem, f"use {rounds}"))
        clusters, silos = self.config.clusters, len(self.spec.silos.refs)
        if silos and clusters > silos:
            problem = f"is more than the {silos} silos of spec.silos.refs"
            faults.append(("spec.method.config.clusters", clusters, problem, f"use {silos} or less"))
        return faults


class FedConcat(ConcatenationMethod):
    """Declaration of FedConcat, whose silos are clustered by label distribution."""

    name = "fedconcat"
    title = "Concatenated encoders of silos clustered by label distribution"
    Config = FedConcatConfig
    config: FedConcatConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        """Counts once, or the distribution itself where it has noise; then the stages."""
        counts = Payload("class_counts", "count", (), "int64", per_class=True)
        noisy = Payload("class_counts", NOISY_KIND, ("classes",), "float64")
        return {"distribution": Step((counts if self.config.epsilon is None else noisy,)), **super().steps()}

    @property
    @override
    def training(self) -> TrainingTraits:
        """The stages, and noise on the counts; the paper's on the distribution is not accounted."""
        traits = super().training
        if self.config.epsilon is not None:
            return traits
        return replace(traits, mechanisms={**traits.mechanisms, "class_counts": "Gaussian"})

    @override
    def phases(self) -> tuple[Phase, ...]:
        """One exchange of counts, then T_e and T_c rounds."""
        return (
            Phase("distribution", 1, "distribution", everyone=True),
            Phase("encoders", self.config.encoder_rounds, "train"),
            Phase("classifier", self.config.classifier_rounds, "classify"),
        )

    @override
    def server(self) -> ServerHalf[Updates]:
        """Stages 1 to 3."""
        from fedsilo.methods.fedconcat.server import FedConcatServer

        return FedConcatServer(self.config)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """Counts, or the distribution with noise; then the stages."""
        from fedsilo.methods.fedconcat.distributions import class_distribution, disclose_noisy

        epsilon = self.config.epsilon
        step = class_distribution if epsilon is None else partial(disclose_noisy, epsilon=epsilon)
        return {"distribution": step, **super().silo()}
