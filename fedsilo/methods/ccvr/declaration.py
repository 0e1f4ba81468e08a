"""Declaration of CCVR with its settings and what silos send beside what the method before asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from typing_extensions import override

from fedsilo.methods.ccvr.config import COVARIANCE, MOMENT, STATISTICS, CCVRConfig, Covariance
from fedsilo.methods.components.post_training import PostTraining
from fedsilo.methods.components.statistics_of_silos import of_all, of_each
from fedsilo.methods.interface import Phase, ServerHalf, SiloStep
from fedsilo.methods.moments import Spread
from fedsilo.methods.reading import Mean, Updates
from fedsilo.methods.step import Payload, Step
from fedsilo.methods.traits import StateTraits, TrainingTraits
from fedsilo.wire.combine import BlockSum, CountedMean


class CCVR(PostTraining):
    """Declaration of CCVR, classifier calibration after another method."""

    name = "ccvr"
    title = "Classifier calibration with virtual representations"
    use_when = "labels are skewed or long-tailed, and silos may tell statistics of their classes"
    citation = (
        "M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. No Fear of Heterogeneity: Classifier Calibration for "
        "Federated Learning with Non-IID Data. NeurIPS 2021."
    )
    keeps = StateTraits(
        "what the method before keeps, and the calibrated model", "what the method before keeps"
    )
    Config = CCVRConfig
    config: CCVRConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        return {**super().steps(), STATISTICS: Step(self._statistics())}

    @override
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases(), Phase("calibration", 1, STATISTICS, everyone=True))

    @override
    def server(self) -> ServerHalf[Any]:
        """The method before, then the calibration."""
        from fedsilo.methods.ccvr.server import CCVRServer

        last, sent = next(reversed(super().phases()), None), of_all if self._summed else of_each
        return CCVRServer(self.config, self.base.server(), last, sent)

    @property
    @override
    def reads(self) -> type[Mean]:
        """Single silos' statistics, unless they are moments, which can be added: to merge a covariance about the mean
        is more exact than sums of squares. With moments, what the method before reads.
        """
        return super().reads if self._summed else Updates

    @property
    def _summed(self) -> bool:
        return bool(self.spec.aggregation.secure)

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        """The steps of the method before, and the statistics under the trained model."""
        from fedsilo.methods.ccvr.silo import class_statistics

        covariance, kind = self.config.covariance, MOMENT if self._summed else COVARIANCE
        spread = None if covariance == "none" else Spread(kind, diagonal=covariance == "diagonal")
        return {**super().silo(), STATISTICS: partial(class_statistics, spread=spread)}

    @property
    @override
    def training(self) -> TrainingTraits:
        """The training of the method before, and noise on the sums that the statistics are made of."""
        traits, kinds = super().training, {payload.kind for payload in self._statistics()}
        return replace(traits, mechanisms={**traits.mechanisms, **dict.fromkeys(sorted(kinds), "Gaussian")})

    @override
    def check(self) -> list[tuple[str, object, str, str]]:
        """What holds of the method before, and no power of negative features."""
        faults = super().check()
        if self.config.tukey_beta is not None and not self.config.relu:
            problem = "transforms features that may be negative"
            faults.append(("spec.method.config.tukeyBeta", self.config.tukey_beta, problem, "set relu: true"))
        return faults

    def _statistics(self) -> tuple[Payload, ...]:
        return statistics_payloads(self.config.covariance, self._summed)


def statistics_payloads(covariance: Covariance, summed: bool = False) -> tuple[Payload, ...]:
    """What a silo discloses: counts and means, and covariances of d x d or d numbers if asked for.

    :param summed: whether silos are seen in a sum only, to which they give second moments in place of covariances.
    """
    means = (
        Payload("class_means", "count", (), "int64", per_class=True, combine=BlockSum()),
        Payload("class_means", "mean", ("feature",), "float64", per_class=True, combine=CountedMean("count")),
    )
    if covariance == "none":
        return means
    shape = ("feature", "feature") if covariance == "full" else ("feature",)
    spread = MOMENT if summed else COVARIANCE
    return (
        *means,
        Payload("class_covariances", spread, shape, "float64", per_class=True, combine=CountedMean("count")),
    )
