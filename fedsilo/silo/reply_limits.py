"""What job and policy together permit in a silo's reply: which figures leave, and how many examples stand behind each.

Guard and simulation hold a reply to the same limits, and the trainer is told the minimums.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import get_args

from fedsilo.api.common import EXAMPLES_OF_AN_UPDATE
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import PersonalAccuracy, SiloPolicy
from fedsilo.methods.components.feature_statistics import min_values_per_part
from fedsilo.methods.step import NAMED_PERSONAL_ACCURACY, NAMED_SCORES, PERSONAL_ACCURACY


@dataclass(frozen=True)
class ReplyLimits:
    """What job and policy together permit in a reply.

    :param min_samples_per_class: samples that a per-class quantity must be computed from.
    :param personal_accuracy: how the accuracy of the silo's own model may be reported.
    :param min_values_per_feature: values that statistics of a feature must be computed from; an image has as many
        in a channel as pixels.
    :param min_samples_per_feature: examples that statistics of targets must be computed from.
    :param scores_named_from: validation examples from which on scores are reported with the silo's name; None: never.
    :param figures: whether number of samples and metrics leave: none do under differential privacy, which has no
        mechanism for them.
    :param min_values_per_part: values that a part of a histogram must have.
    """

    min_samples_per_class: int
    personal_accuracy: PersonalAccuracy = "Mean"
    min_values_per_feature: int = 1
    min_samples_per_feature: int = 1
    figures: bool = True
    scores_named_from: int | None = None
    min_values_per_part: int = 1

    @classmethod
    def of(cls, spec: FederatedJobSpec, silo: Silo) -> ReplyLimits:
        """The limits of a job in a silo."""
        examples = min_samples_per_feature(spec, silo)
        values = examples * math.prod(spec.data.input_shape[1:])
        personal = silo.spec.policy.personal_accuracy
        if personal == "PerSilo" and spec.aggregation.secure:
            personal = "Mean"  # no job with sums declares the other name
        figures = spec.privacy.differential_privacy is None
        named_from = (
            min_samples_per_update(silo.spec.policy) if silo.spec.policy.scores == "PerSilo" else None
        )
        per_part = min_values_per_part(spec, examples)
        per_class = min_samples_per_class(spec, silo)
        return cls(per_class, personal, values, examples, figures, named_from, per_part)

    def and_those(self, other: ReplyLimits) -> ReplyLimits:
        """The stricter of both in everything."""
        named = get_args(PersonalAccuracy)  # from the strictest on
        named_from = (self.scores_named_from, other.scores_named_from)
        return ReplyLimits(
            max(self.min_samples_per_class, other.min_samples_per_class),
            min(self.personal_accuracy, other.personal_accuracy, key=named.index),
            max(self.min_values_per_feature, other.min_values_per_feature),
            max(self.min_samples_per_feature, other.min_samples_per_feature),
            self.figures and other.figures,
            None if None in named_from else max(filter(None, named_from), default=1),
            max(self.min_values_per_part, other.min_values_per_part),
        )

    def samples(self, stated: int) -> int:
        """The number of samples that an update states: the trainer's, or 0 where it does not leave."""
        return stated if self.figures else 0

    def metrics(
        self, stated: Mapping[str, float], samples: int = 0, declared: Collection[str] = ()
    ) -> dict[str, float]:
        """The scalars that may leave; the name of the personal accuracy says whether it may be reported by silo, and
        `named_scores` whether the others may.

        :param stated: those of the trainer, which does not choose between the two names.
        :param samples: the number of samples that it states beside them.
        :param declared: names that the contract permits.
        """
        if not self.figures:
            return {}
        leaving = dict(stated)
        leaving.pop(NAMED_PERSONAL_ACCURACY, None)
        leaving.pop(NAMED_SCORES, None)
        least = self.scores_named_from
        if NAMED_SCORES in declared and least is not None and samples >= least:
            leaving[NAMED_SCORES] = 1.0
        accuracy = leaving.pop(PERSONAL_ACCURACY, None)
        if accuracy is None or self.personal_accuracy == "Withheld":
            return leaving
        name = NAMED_PERSONAL_ACCURACY if self.personal_accuracy == "PerSilo" else PERSONAL_ACCURACY
        return leaving | {name: accuracy}


def min_samples_per_class(spec: FederatedJobSpec, silo: Silo) -> int:
    """Samples below which a class is left out: the larger of the job's and the silo's minimum."""
    return max(spec.privacy.min_samples_per_class, silo.spec.policy.min_samples_per_class)


def min_samples_per_feature(spec: FederatedJobSpec, silo: Silo) -> int:
    """Samples below which statistics of a feature are left out: the larger of the job's and the silo's minimum."""
    own = silo.spec.policy.min_samples_per_feature
    return min_samples_per_class(spec, silo) if own is None else max(spec.privacy.min_samples_per_class, own)


def min_samples_per_update(policy: SiloPolicy) -> int:
    """Examples that a model was trained on at least, if it is sent; what a job asks for is checked with the job."""
    own = policy.min_samples_per_update
    return min(policy.min_samples_per_class, EXAMPLES_OF_AN_UPDATE) if own is None else own
