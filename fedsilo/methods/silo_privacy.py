"""What a job's differential privacy of whole silos comes to: noise of each update, epsilon, and what it cannot cover.

A silo's change is its model less the round's. The guard clips it to the norm C and adds its part of the noise, so that
the sum over as many silos as a round needs has the deviation sigma C. One silo that is there or not changes the sum by
C at most: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018, with the noise made
where the data are. All else that a method makes of the sums reveals nothing more. Rounds compose in closed form
(`fedsilo.privacy.gaussian`); that silos are drawn at random is not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from fedsilo.api.faults import ABSENT, Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Mean
from fedsilo.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from fedsilo.privacy.mechanism import Mechanism

FIELD = "spec.privacy.differentialPrivacy"

REMEDY = "use fedavg or a method like it, or another unit"


@dataclass(frozen=True)
class UpdatePrivacy:
    """What a guard does to one update of a job with `unit: silo`.

    :param noise_multiplier: sigma: deviation of the noise in a round's sum over `max_norm`.
    :param max_norm: C, the L2 norm that a silo's change is clipped to.
    :param quorum: silos without which a round gives no sum, each of which adds a part of the noise.
    :param rounds: in which a silo may send an update.
    :param summed: whether nobody sees a single update, but sums over the quorum or more.
    """

    noise_multiplier: float
    max_norm: float
    quorum: int
    rounds: int
    summed: bool = False

    @classmethod
    def of_job(cls, spec: FederatedJobSpec) -> Self | None:
        """That of a job whose method is covered; None where the job does not ask for it."""
        private, participation = spec.privacy.differential_privacy, spec.participation
        if private is None or private.unit != "silo":
            return None
        assert private.max_update_norm is not None, "required with this unit"
        rounds, noise = spec.training.rounds, private.noise_multiplier
        if noise is None:
            assert private.epsilon is not None, "one of the two is there"
            noise = gaussian_noise_multiplier(private.epsilon, private.delta, rounds)
        # Of a selector's silos, which are refused, each would add the whole noise.
        quorum = max(participation.quorum(participation.sampled(len(spec.silos.refs))), 1)
        return cls(noise, private.max_update_norm, quorum, rounds, bool(spec.aggregation.secure))

    @property
    def deviation(self) -> float:
        """Of the noise in one update: as many as the quorum make up the whole."""
        return self.noise_multiplier * self.max_norm / math.sqrt(self.quorum)

    @property
    def of_one_example(self) -> Mechanism:
        """What one example or person goes through in one round, as whoever learns the most of it sees it.

        One example, or one person's, may turn a clipped change into any other, which is 2 C away. The aggregator sees
        every update, which has no more noise than its own; with secure aggregation it sees sums, which have the noise
        of as many silos as the quorum.
        """
        parts = self.quorum if self.summed else 1
        return Mechanism(math.sqrt(parts) * self.deviation / (2 * self.max_norm))

    def silo_epsilon(self, delta: float) -> float:
        """Epsilon of the whole job for a silo as a whole, of whoever sees sums only."""
        return gaussian_epsilon(self.noise_multiplier, self.rounds, delta)

    def example_epsilon(self, delta: float) -> float:
        """Epsilon of the whole job for one example, of whoever learns the most; what a budget is charged."""
        return gaussian_epsilon(self.of_one_example.noise_multiplier, self.rounds, delta)


def check_silo_privacy(method: Method) -> Iterator[Finding]:
    """What a job with `unit: silo` asks for that its noise does not cover."""
    spec = method.spec
    private = spec.privacy.differential_privacy
    assert private is not None, "asked for only where the job has it"
    if why := uncovered_silo(method):
        given = private.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield FIELD, given, f"does not cover method {method.name}, {why}", REMEDY
    yield from _check_sum(spec)
    silos = len(spec.silos.refs)
    if not silos:
        problem = "leaves open how many silos there are, among whom unit silo divides the noise"
        yield "spec.silos.selector", ABSENT, problem, "name them in spec.silos.refs"
    elif private.delta * silos >= 1:
        problem = f"is not below one over the {silos} silos, so that one of them might be revealed whole"
        yield f"{FIELD}.delta", private.delta, problem, f"use less than {1 / silos:.2g}"
    if spec.training.trainer_metrics is not None:
        problem = "has no meaning with unit silo, where no figures of training leave a silo"
        yield "spec.training.trainerMetrics", list(spec.training.trainer_metrics), problem, "remove it"


def uncovered_silo(method: Method) -> str | None:
    """Why the noise of updates does not cover the method, a clause after its name; None where it does."""
    if method.reads is not Mean:
        return "whose aggregate is not just one mean of the silos' models"
    if method.models.personal is not None:
        return "in which scores of silos' own models leave them too"
    if needed := sorted({metric for step in method.steps().values() for metric in step.required}):
        return f"which needs {', '.join(needed)} of every silo"
    return None


def _check_sum(spec: FederatedJobSpec) -> Iterator[Finding]:
    """That what is made of the updates is a sum in which all count alike, of what the guard has clipped."""
    aggregation = spec.aggregation
    if aggregation.weights != "uniform":
        problem = (
            "is not uniform, so that a silo of many examples would count for more than its clipped change"
        )
        yield "spec.aggregation.weights", aggregation.weights or ABSENT, problem, "write uniform"
    if aggregation.rule is not None:
        problem = "looks at single silos' models, whose noise is only a part of what unit silo asks for"
        yield "spec.aggregation.rule.name", aggregation.rule.name, problem, "remove it"
    for name, encoding in (("upload", spec.upload), ("download", spec.download)):
        if encoding.is_encoded:
            problem = "has tensors sent as parts, to which the guard cannot add noise, as unit silo needs"
            given = encoding.model_dump(mode="json", by_alias=True, exclude_none=True)
            yield f"spec.communication.{name}", given, problem, "remove it"
