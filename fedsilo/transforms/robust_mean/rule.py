"""The robust rule of `spec.aggregation.rule`, which takes the place of the mean of the silos' models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsilo.api.aggregation import RuleSpec
from fedsilo.errors import QuorumLost
from fedsilo.methods.state import Tree
from fedsilo.transforms.robust_mean import weights as weighted
from fedsilo.transforms.robust_mean.coordinates import median_trim, trimmed_mean
from fedsilo.transforms.robust_mean.pieces import Models, open_models
from fedsilo.updates.round_updates import RoundUpdates


class RobustMean:
    """The rule of one exchange.

    :param sent: the model that the silos were sent.
    :ivar kept: silo -> how much of its model counted, from 0 to 1, once `mean` was asked for.
    """

    def __init__(self, rule: RuleSpec, sent: Mapping[str, np.ndarray]) -> None:
        self.kept: dict[str, float] = {}
        self._rule, self._sent = rule, sent

    def mean(self, updates: RoundUpdates, kind: str, shares: Mapping[str, float]) -> Tree:
        """What the rule makes of the models of the silos that have a share.

        :param shares: of the silos in a mean; they add up to one.
        :raises QuorumLost: too few answered for the rule to have a meaning.
        """
        rule, silos = self._rule, [silo for silo in updates.silos if silo in shares]
        if len(silos) < rule.fewest_silos:
            raise QuorumLost(
                f"{len(silos)} silos answered, and {rule.name} needs {rule.fewest_silos}; raise "
                "spec.participation.minSilos, so that a round waits for as many"
            )
        with open_models(updates, kind, silos) as models:
            if rule.name in ("median", "trimmed-mean"):
                left_out = median_trim(len(silos)) if rule.byzantine is None else rule.byzantine
                tree, kept = trimmed_mean(models, list(models.tensors), left_out)
            else:
                tree, kept = self._weighted_model(models, np.array([shares[silo] for silo in silos]))
        self.kept = {silo: float(f"{part:.4g}") for silo, part in zip(silos, kept, strict=True)}
        return tree

    def _weighted_model(self, models: Models, shares: np.ndarray) -> tuple[Tree, np.ndarray]:
        """A weighted sum of the models, and of the model that was sent where some of their weight is left over."""
        gram = weighted.products(models, self._sent)
        weights, kept = self._weights(gram, shares)
        clipped = self._rule.name == "norm-clipping" and bool((kept < 1).any())
        rest = 1 - float(weights.sum()) if clipped else 0.0
        # Of the other tensors the median: no distance depends on them, so that a model of any weight may have anything.
        counters, _ = trimmed_mean(models, models.non_float_names, median_trim(models.silos))
        tree = counters | weighted.weighted_sum(models, weights, self._sent, rest)
        return {name: tree[name] for name in models.tensors}, kept

    def _weights(self, gram: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weight of each silo's model in the rule's sum, and the part of it that counts, from 0 to 1."""
        rule = self._rule
        if rule.name == "norm-clipping":
            assert rule.norm is not None, "checked with the manifest"
            kept = weighted.clipping(gram, rule.norm)
            return shares * kept, kept
        if rule.name == "geometric-median":
            weights = weighted.geometric_median(gram, shares)
            return weights, np.minimum(weights / shares, 1)
        assert rule.byzantine is not None, "checked with the manifest"
        most = len(gram) - rule.byzantine - 2
        selected = 1 if rule.name == "krum" else min(rule.selected or most, most)
        kept = weighted.krum(gram, rule.byzantine, selected)
        return kept / selected, kept
