"""Figures of a round's updates for its record."""

from __future__ import annotations

from fedsilo.methods.reading import mean_weights
from fedsilo.methods.step import NAMED_PERSONAL_ACCURACY, NAMED_SCORES, PERSONAL_ACCURACY
from fedsilo.updates.round_updates import RoundUpdates


def mean_metrics(updates: RoundUpdates) -> dict[str, float]:
    """Mean of each scalar over the silos that sent it, weighted by their sample counts."""
    means = {}
    for name in sorted({name for silo in updates.silos for name in public_metrics(updates, silo)}):
        silos = [silo for silo in updates.silos if name in updates.metrics(silo) and updates.samples(silo)]
        if silos:
            weights = mean_weights(updates, "samples", silos)
            means[name] = sum(weights[silo] * updates.metrics(silo)[name] for silo in silos)
    return means


def public_metrics(updates: RoundUpdates, silo: str) -> dict[str, float]:
    """The silo's scalars, less those of its own model, which only `personal_accuracy` reports, and less what it
    permits.
    """
    own = (PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY, NAMED_SCORES)
    return {name: value for name, value in updates.metrics(silo).items() if name not in own}


def personal_accuracy(updates: RoundUpdates) -> tuple[dict[str, float], dict[str, float]]:
    """What may be reported about the silos' own models: figures over those that have one, and figures by silo.

    The mean is over silos, not samples, and the spread is the standard deviation of the same values. By silo only if
    every one of them permits it: beside the others, the mean would give away the one that does not.
    """
    found = updates.over_silos(PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY)
    if found is None:
        return {}, {}
    named = _metric_by_silo(updates, NAMED_PERSONAL_ACCURACY)
    metrics = {
        PERSONAL_ACCURACY: found.mean,
        "personal_accuracy_spread": found.spread,
        "personal_models": float(found.silos),
    }
    return metrics, named if len(named) == found.silos else {}


def _metric_by_silo(updates: RoundUpdates, name: str) -> dict[str, float]:
    return {silo: updates.metrics(silo)[name] for silo in updates.silos if name in updates.metrics(silo)}
