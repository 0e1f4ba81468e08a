"""A sum over silos, as methods read updates: as if all silos were one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedsilo.api.aggregation import RuleSpec
from fedsilo.errors import MethodError
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload
from fedsilo.secure_aggregation.aggregator_side import add_masked
from fedsilo.secure_aggregation.clipping import Tensor, clipped_model
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.parts import CrossSiloStatistics, SumResult
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.wire.combine import Quotient

AGGREGATE_SENDER = "all silos"
"""What the sum is called where methods expect a silo."""


@dataclass(frozen=True)
class OneUpdate:
    """The update of all silos together, whose tensors are the means.

    :param samples: of all silos.
    :param metrics: means, weighted by samples.
    :param blocks: payload kind -> means of its tensors.
    """

    samples: int
    metrics: Mapping[str, float]
    blocks: Mapping[str, Tree]


class SummedUpdates(InMemoryUpdates):
    """The updates of a round of which only sums are seen."""

    together = True

    def __init__(self, layout: Layout, summed: SumResult) -> None:
        blocks: dict[str, Tree] = {}
        for block in layout.contract.blocks:
            if block.name in summed.tensors:
                blocks.setdefault(block.kind, {})[block.name] = summed.tensors[block.name]
        super().__init__({AGGREGATE_SENDER: OneUpdate(summed.samples, summed.metrics, blocks)})
        self._summed, self._quotient = summed, layout.quotient

    @property
    @override
    def count(self) -> int:
        """How many silos' updates count."""
        return self._summed.silos

    @override
    def over_silos(self, *metrics: str) -> CrossSiloStatistics | None:
        """Mean and spread of a metric over the silos that state it; of its names such a job has one."""
        return next((self._summed.alike[name] for name in metrics if name in self._summed.alike), None)

    @override
    def combine(self, payloads: Sequence[Payload], rule: str) -> Tree:
        del rule
        return self.tensors(AGGREGATE_SENDER, payloads[0].kind)

    @override
    def quotient(self, over: Quotient, rule: str, scale: float, distance: float) -> tuple[Tree, float]:
        """Quotient that the round has summed, times scale / distance, with its sum of weights.

        :raises MethodError: it is not the one that the step declares.
        """
        del rule  # by which the sum was made
        if over != self._quotient:
            raise MethodError(f"quotient by {over.metric}: the step does not declare it")
        factor = scale / distance
        tree: Tree = {
            name: np.asarray(factor * found, found.dtype) for name, found in self._summed.quotients.items()
        }
        return tree, factor * self._summed.quotient_weight

    @override
    def mean_metric(self, metric: str, rule: str) -> float:
        """Average of a metric that every silo states.

        :raises MethodError: the rule of averaging is another than by samples, which is what was summed.
        """
        if rule != "samples":
            raise MethodError(f"metric {metric}: in a sum its average is by samples, and the job's is not")
        return super().mean_metric(metric, rule)


def sum_plaintext(
    updates: RoundUpdates, layout: Layout, rule: RuleSpec | None, sent: Mapping[str, np.ndarray]
) -> SummedUpdates:
    """The sum of updates that are not masked, to the bit the one that comes of masked ones: for simulations.

    :param rule: norm clipping, where the job has it.
    :param sent: the model that the silos were sent, as it was sent.
    """
    total = np.zeros(layout.size, np.uint64)
    kinds = dict.fromkeys(block.kind for block in layout.contract.blocks)
    for silo in updates.silos:
        tensors = {name: array for kind in kinds for name, array in updates.tensors(silo, kind).items()}
        tensor: Tensor = tensors.__getitem__
        if rule is not None and rule.norm is not None and layout.model:
            tensor = clipped_model(tensor, layout.model, sent, rule.norm)
        summand = layout.encode(updates.samples(silo), updates.metrics(silo), tensors, tensor, sent)
        add_masked(total, [summand])
    return SummedUpdates(layout, layout.decode(total, len(updates.silos), sent))
