"""Blocks of several silos' updates as one, each as its payload says it is combined.

It is what a sum over silos yields where `spec.aggregation.secure` lets nobody see more, see
`fedsilo.secure_aggregation.layout`; here updates are read silo by silo, and one at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.methods.reading import AcceptedUpdates, mean_weights
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload
from fedsilo.updates.equality import equal_in
from fedsilo.wire.combine import BlockSum, CountedMean, SquaredDeviations


def combine_blocks(updates: AcceptedUpdates, payloads: Sequence[Payload], rule: str) -> Tree:
    """The blocks of one payload kind, combined over all silos that sent them.

    :param payloads: all of the step's that are of that kind.
    :param rule: of averaging, `samples` or `uniform`, for blocks that are averaged and are of no class.
    :returns: name -> tensor of the block's type, computed in float64. A block of a class that no silo sent, or of which
        no example is counted, is missing.
    :raises MethodError: a silo sent a block without the one that counts its examples, or no silo states a sample.
    """
    kind = payloads[0].kind
    totals = updates.weighted_sum(kind, dict.fromkeys(updates.silos, 1.0))
    of = {name: _payload_of(name, payloads) for name in totals}
    by_count = {name: payload for name, payload in of.items() if _needs_counts(payload)}
    found = _by_count(updates, kind, by_count) if by_count else {}
    alike: Tree = {}
    if any(payload.averaged_by_rule for payload in of.values()):
        alike = updates.weighted_sum(kind, mean_weights(updates, rule, updates.silos))
    for name, payload in of.items():
        if payload.averaged_by_rule:
            found[name] = alike[name]
        elif isinstance(payload.combine, BlockSum):
            found[name] = totals[name]
    if left := of.keys() - found.keys() - by_count.keys():
        found |= _means_over_senders(updates, kind, {name: totals[name] for name in left})
    return {name: found[name] for name in of if name in found}


def _payload_of(name: str, payloads: Sequence[Payload]) -> Payload:
    named = {payload.name: payload for payload in payloads}
    return named.get(name) or named.get(name.rpartition("/")[0]) or named[None]


def _needs_counts(payload: Payload) -> bool:
    return isinstance(payload.combine, CountedMean | SquaredDeviations)


def _means_over_senders(updates: AcceptedUpdates, kind: str, totals: Tree) -> Tree:
    """Means over the silos that sent a block, each alike, with what all of them sent as they sent it."""
    senders = [name for silo in updates.silos for name in updates.names(silo, kind)]
    found = {
        name: np.asarray(total / senders.count(name), total.dtype).copy() for name, total in totals.items()
    }
    first: Tree = {}
    equal: Tree = {}
    for silo in updates.silos:
        for name, array in updates.tensors(silo, kind).items():
            if name in totals:
                one = first.setdefault(name, array)
                equal[name] = equal.get(name, np.True_) & equal_in([one, array])
    for name, where in equal.items():
        np.copyto(found[name], first[name], where=where)
    return found


def _by_count(updates: AcceptedUpdates, kind: str, of: Mapping[str, Payload]) -> Tree:
    """Means that counts weigh, and squared deviations about them; Chan, Golub and LeVeque, 1983, eq. 2.1b."""
    counts: Tree = {}
    found: Tree = {}
    types: dict[str, np.dtype] = {}
    for silo in updates.silos:
        sent = updates.tensors(silo, kind)
        # Deviations first: they are merged about the mean of the silos before this one.
        for name in sorted(
            of.keys() & sent.keys(), key=lambda name: isinstance(of[name].combine, CountedMean)
        ):
            mean = _mean_beside(name, of)
            own, own_count = sent[mean].astype(np.float64), _count(silo, mean, of[mean], sent)
            count, types[name] = counts.get(mean, np.zeros_like(own_count)), sent[name].dtype
            shift = own - found.get(mean, np.zeros_like(own))
            share = own_count / np.maximum(count + own_count, 1)
            if mean == name:
                found[name] = found.get(name, np.zeros_like(own)) + shift * share
                counts[name] = count + own_count
            else:
                found[name] = found.get(name, 0.0) + sent[name] + shift**2 * share * count
    uncounted = {name for name, count in counts.items() if of[name].per_class and not count.any()}
    return {name: np.asarray(found[name], types[name]) for name in found if name not in uncounted}


def _mean_beside(name: str, of: Mapping[str, Payload]) -> str:
    combine = of[name].combine
    return combine.mean if isinstance(combine, SquaredDeviations) else name


def _count(silo: str, name: str, payload: Payload, sent: Tree) -> np.ndarray:
    assert isinstance(payload.combine, CountedMean), "what deviations are about is a mean that counts weigh"
    label = f"/{name.rpartition('/')[2]}" if payload.per_class else ""
    counts = payload.combine.count + label
    if counts not in sent:
        raise MethodError(f"silo {silo}: block {counts}: is missing, which counts for {name}; send both")
    return sent[counts].astype(np.float64)
