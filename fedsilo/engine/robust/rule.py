"""`spec.aggregation.rule`: what takes the place of the mean of the silos' models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsilo.api.aggregation import RuleSpec
from fedsilo.engine.fold import FoldedUpdates
from fedsilo.engine.robust import weights as weighted
from fedsilo.engine.robust.coordinates import median_trim, trimmed
from fedsilo.engine.robust.pieces import open_models
from fedsilo.errors import QuorumLost
from fedsilo.methods.state import Tree


class RobustMean:
    """The rule of one exchange.

    :param sent: the model that the silos were sent.
    :ivar kept: silo -> how much of its model counted, from 0 to 1, once `mean` was asked for.
    """

    def __init__(self, rule: RuleSpec, sent: Mapping[str, np.ndarray]) -> None:
        self.kept: dict[str, float] = {}
        self._rule, self._sent = rule, sent

    def mean(self, updates: FoldedUpdates, kind: str, shares: Mapping[str, float]) -> Tree:
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
        if rule.name in ("median", "trimmed-mean"):
            left_out = median_trim(len(silos)) if rule.byzantine is None else rule.byzantine
            with open_models(updates, kind, silos) as models:
                tree, kept = trimmed(models, len(silos), left_out)
            return self._noted(silos, kept, tree)
        with open_models(updates, kind, silos) as models:
            gram = weighted.products(models, self._sent)
        given = np.array([shares[silo] for silo in silos])
        if rule.name == "norm-clipping":
            assert rule.norm is not None, "checked with the manifest"
            return self._clipped(updates, kind, silos, given, weighted.clipping(gram, rule.norm))
        chosen, kept = self._chosen(gram, given)
        return self._noted(silos, kept, updates.weighted_sum(kind, _of(silos, chosen)))

    def _chosen(self, gram: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights, which add up to one, and what of each model counts."""
        rule = self._rule
        if rule.name == "geometric-median":
            found = weighted.geometric_median(gram, given)
            return found, np.minimum(found / given, 1)
        assert rule.byzantine is not None, "checked with the manifest"
        most = len(gram) - rule.byzantine - 2
        selected = 1 if rule.name == "krum" else min(rule.selected or most, most)
        kept = weighted.krum(gram, rule.byzantine, selected)
        return kept / selected, kept

    def _clipped(
        self, updates: FoldedUpdates, kind: str, silos: Sequence[str], given: np.ndarray, kept: np.ndarray
    ) -> Tree:
        """w + sum of p_i c_i x_i, which is a weighted sum of the models and of w, the model that was sent."""
        tree = updates.weighted_sum(kind, _of(silos, given * kept))
        rest = float(1 - given @ kept)
        for name, total in tree.items():
            if total.dtype.kind == "f" and rest > 0:
                tree[name] = (total + rest * self._sent[name]).astype(total.dtype)
            elif rest > 0:
                tree[name] = np.array(self._sent[name])
        return self._noted(silos, kept, tree)

    def _noted(self, silos: Sequence[str], kept: np.ndarray, tree: Tree) -> Tree:
        self.kept = {silo: round(float(part), 4) for silo, part in zip(silos, kept, strict=True)}
        return tree


def _of(silos: Sequence[str], weights: np.ndarray) -> dict[str, float]:
    """Silo -> weight, without those that have none."""
    return {silo: float(weight) for silo, weight in zip(silos, weights, strict=True) if weight}
