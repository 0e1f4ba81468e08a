"""The aggregator's side of one sum: it takes off the masks that are left in the sum of the masked vectors."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from fedsilo.errors import Problem, QuorumLost
from fedsilo.secure_aggregation.masks import add_mask, public_of
from fedsilo.secure_aggregation.messages import KeyAnnouncement, SumContext, Unmasking, verify_confirmation
from fedsilo.secure_aggregation.shamir import combine
from fedsilo.secure_aggregation.silo_side import own_mask, pair_mask


def add_masked(total: np.ndarray, masked: Iterable[np.ndarray]) -> None:
    """Add the survivors' masked vectors to (n,) uint64 in place, modulo 2^64."""
    for vector in masked:
        np.add(total, vector, out=total)


def unmask(
    total: np.ndarray,
    context: SumContext,
    announced: Mapping[str, KeyAnnouncement],
    sharers: Collection[str],
    survivors: Collection[str],
    unmaskings: Mapping[str, Unmasking],
    sent: bytes,
) -> None:
    """Turn the sum of the survivors' masked vectors into the sum of their vectors, in place.

    :param sharers: silos that shared their secrets, survivors among them.
    :param unmaskings: of the silos that sent theirs.
    :param sent: SHA-256 of what survivors were sent, see `agreed_broadcast`.
    :raises QuorumLost: there are too few shares.
    :raises Problem: `malformed` where shares are of no secret that was announced.
    """
    context.require_enough(unmaskings, "sent shares")
    for silo in survivors:
        seed = _secret(context, {who: one.seeds for who, one in unmaskings.items()}, silo)
        if seed is None or hashlib.sha256(seed).digest() != announced[silo].commitment:
            raise _wrong_shares_problem(silo)
        add_mask(total, own_mask(seed, context), -1)
    for silo in sharers:
        if silo in survivors:
            continue
        key = _secret(context, {who: one.keys for who, one in unmaskings.items()}, silo)
        if key is None or public_of(key) != announced[silo].mask_key:
            raise _wrong_shares_problem(silo)
        for other in survivors:
            secret = pair_mask(key, announced[other].mask_key, context, sent)
            # The survivor added it where it comes first in the job, and subtracted it otherwise.
            add_mask(total, secret, -1 if context.point(other) < context.point(silo) else 1)


def agreed_broadcast(
    context: SumContext, survivors: Collection[str], confirmed: Mapping[str, bytes]
) -> bytes:
    """SHA-256 of what survivors were sent, as at least the threshold of them have confirmed it.

    A silo that states something else counts as one that has confirmed nothing. If it tells the truth, its masks do not
    cancel, and the sum is one that no silos can have.

    :param confirmed: survivor -> its confirmation, of those that have sent one.
    :raises Problem: `signature-invalid`.
    :raises QuorumLost: fewer were sent the same, by their own account.
    """
    stated = Counter(verify_confirmation(context, silo, survivors, one) for silo, one in confirmed.items())
    (sent, count), *_ = stated.most_common(1) or [(b"", 0)]
    if count < context.threshold:
        raise QuorumLost(
            f"secure aggregation: {count} silos state that they were sent {sent.hex()[:12]} for {context.exchange}, "
            f"and {context.threshold} are needed that were sent the same; nothing is unmasked; run aggregator and "
            "silos in one version",
        )
    return sent


def _secret(context: SumContext, shares: Mapping[str, Mapping[str, bytes]], silo: str) -> bytes | None:
    found = {context.point(who): given[silo] for who, given in shares.items() if silo in given}
    if len(found) < context.threshold:
        raise QuorumLost(
            f"secure aggregation: {len(found)} shares of {silo} are there, and {context.threshold} are needed",
        )
    return combine(found, context.threshold)


def _wrong_shares_problem(silo: str) -> Problem:
    return Problem(
        "malformed",
        f"secure aggregation: the shares of {silo} are of no secret that it announced; nothing is unmasked",
    )
