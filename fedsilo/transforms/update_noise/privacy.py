"""What a job's differential privacy of whole silos comes to: noise of each update, and epsilon.

A silo's change is its model less the round's. The guard clips it to the norm C and adds its part of the noise, so that
the sum over as many silos as a round needs has the deviation sigma C. One silo that is there or not changes the sum by
C at most: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018, with the noise made
where the data are. All else that a method makes of the sums reveals nothing more. Rounds compose in closed form
(`fedsilo.privacy.gaussian`); that silos are drawn at random is not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from fedsilo.api.job import FederatedJobSpec
from fedsilo.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from fedsilo.privacy.mechanism import Mechanism


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
        """Privacy of the updates of a job whose method is covered; None where the job does not ask for it."""
        private, participation = spec.privacy.differential_privacy, spec.participation
        if private is None or private.unit != "silo":
            return None
        assert private.max_update_norm is not None, "required with this unit"
        rounds, noise = spec.training.rounds, private.noise_multiplier
        if noise is None:
            assert private.epsilon is not None, "one of the two is there"
            noise = gaussian_noise_multiplier(private.epsilon, private.delta, rounds)
        # Of a selector's silos, which are refused, each would add the whole noise.
        quorum = max(participation.quorum(participation.sample_size(len(spec.silos.refs))), 1)
        return cls(noise, private.max_update_norm, quorum, rounds, bool(spec.aggregation.secure))

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in one update, of which as many as the quorum make up the whole."""
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

    def example_epsilon(self, delta: float) -> float:
        """Epsilon of the whole job for one example, of whoever learns the most; what a budget is charged."""
        return gaussian_epsilon(self.of_one_example.noise_multiplier, self.rounds, delta)
