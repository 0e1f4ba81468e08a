"""What the engine hands to the server half of a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsilo.engine.fold import mean_weights
from fedsilo.learning.models import build_model, initial_model, signature
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import ServerContext, Updates
from fedsilo.methods.method import Method
from fedsilo.methods.state import Tree


@dataclass(frozen=True)
class JobContext(ServerContext):
    """The server half's view of the job.

    :param weights: rule of averaging, `samples` or `uniform`.
    """

    weights: str

    @classmethod
    def of(cls, method: Method, silos: Sequence[str]) -> JobContext:
        """The job that the method is bound to; its model is built once, for the signature.

        :param silos: references `namespace/name`, in the job's order.
        """
        spec = method.spec
        model = build_model(spec.model, spec.data, seed=0)
        return cls(spec, signature(model), tuple(silos), method.averaging)

    def initial_model(self) -> Tree:
        """The job's model with its initial weights, the same for every silo."""
        return initial_model(self.spec)

    def mean(
        self, updates: Updates, kind: str, silos: Sequence[str] | None = None, weights: str | None = None
    ) -> Tree:
        """Average of a kind of tensor, normalised over the given silos (all that answered by default)."""
        chosen = updates.silos if silos is None else silos
        return updates.weighted_sum(kind, mean_weights(updates, weights or self.weights, chosen))

    def seed(self, *purpose: str | int) -> int:
        """Seed for a purpose, derived from the job's seed."""
        return derive_seed(self.spec.training.seed, *purpose)
