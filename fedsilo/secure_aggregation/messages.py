"""What silos and aggregator tell each other, with a strict reader for each message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fedsilo.canonical import canonical_json
from fedsilo.errors import Problem, QuorumLost
from fedsilo.secure_aggregation.masks import KEY_BYTES
from fedsilo.secure_aggregation.shamir import SHARE_BYTES
from fedsilo.wire.keys import SIGNATURE_BYTES, SigningKey, VerifyKey

KEYS, SURVIVORS = "fedsilo/secure-keys/v1", "fedsilo/secure-survivors/v1"
"""Domains of a message's signatures: of keys, and of survivors."""

ANNOUNCEMENT_BYTES = 3 * KEY_BYTES + SIGNATURE_BYTES
"""Two public keys, a commitment and a signature."""

SENT_DIGEST_BYTES = 32
"""SHA-256 of what a silo was sent for a sum."""

CONFIRMATION_BYTES = SENT_DIGEST_BYTES + SIGNATURE_BYTES
"""That digest, and a signature over it and the survivors."""

FEWEST_SILOS = 3
"""Fewest silos of a sum: of two, each knows the other's summand from the sum."""

FEWEST_OF_TWO_SUMS = 4
"""From two sums of the same tensors with different weights, one silo of three knows those of both others."""


@dataclass(frozen=True)
class SumContext:
    """What one sum is of; every key, mask and signature is bound to all of it.

    :param job: uid of the job.
    :param exchange: name of the exchange whose updates are summed.
    :param members: silo -> the key that signs for it, in the job's order.
    :param threshold: silos without which nothing is unmasked.
    :param fewest: silos that must be in a sum for whoever takes part; others do not see it.
    """

    job: str
    exchange: str
    members: Mapping[str, VerifyKey]
    threshold: int
    fewest: int = FEWEST_SILOS

    def __post_init__(self) -> None:
        count = len(self.members)
        if (least := min(count, self.threshold)) < self.fewest:
            raise Problem(
                "out-of-range",
                f"secure aggregation: {least} silos may be in a sum: of fewer than {self.fewest} one of them knows "
                "what the others sent; have more silos, or a larger spec.participation.minSilos",
            )
        if not count < 2 * self.threshold <= 2 * count:
            raise Problem(
                "out-of-range",
                f"secure aggregation: a threshold of {self.threshold} of {count} silos: must be more than half, so "
                f"that no two lists of survivors are both confirmed; use {count // 2 + 1} or more",
            )

    @property
    def content(self) -> bytes:
        """Canonical JSON of the context, equal for everybody who takes part, and different for every other sum."""
        members = [[silo, key.to_text()] for silo, key in self.members.items()]
        return canonical_json(
            {"job": self.job, "exchange": self.exchange, "members": members, "threshold": self.threshold}
        )

    def point(self, silo: str) -> int:
        """Where a silo's shares are values of polynomials: its place in the job, from 1."""
        return list(self.members).index(silo) + 1

    def require_enough(self, silos: Iterable[str], what: str) -> None:
        """Return if so many silos are as many as the threshold.

        :raises QuorumLost: there are fewer.
        """
        count = len(set(silos))
        if count < self.threshold:
            raise QuorumLost(
                f"secure aggregation: {count} silos {what}, and {self.threshold} are needed; nothing is unmasked",
            )


@dataclass(frozen=True)
class KeyAnnouncement:
    """A silo's keys for one sum (round 0).

    :param mask_key: public key whose secrets make the masks.
    :param share_key: public key whose secrets hide shares on their way.
    :param commitment: SHA-256 of the seed of the silo's own mask.
    """

    mask_key: bytes
    share_key: bytes
    commitment: bytes
    signature: bytes

    @classmethod
    def sign(cls, context: SumContext, silo: str, keys: tuple[bytes, bytes, bytes], key: SigningKey) -> Self:
        """The announcement of a silo, under its signing key."""
        return cls(*keys, key.sign(KEYS, _announcement_content(context, silo, keys)))

    def verify(self, context: SumContext, silo: str) -> None:
        """Return if the silo has announced these keys for this sum.

        :raises Problem: `signature-invalid`.
        """
        keys = self.mask_key, self.share_key, self.commitment
        context.members[silo].verify(KEYS, _announcement_content(context, silo, keys), self.signature)

    def to_bytes(self) -> bytes:
        """The announcement as it is sent: both public keys, the commitment and the signature."""
        return self.mask_key + self.share_key + self.commitment + self.signature

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read an announcement that `to_bytes` has written.

        :raises Problem: `malformed` where it has another size.
        """
        if len(content) != ANNOUNCEMENT_BYTES:
            raise Problem(
                "malformed",
                f"secure aggregation: an announcement of {len(content)} bytes, not {ANNOUNCEMENT_BYTES}; send it anew",
            )
        one, two, three = KEY_BYTES, 2 * KEY_BYTES, 3 * KEY_BYTES
        return cls(content[:one], content[one:two], content[two:three], content[three:])


@dataclass(frozen=True)
class Unmasking:
    """A silo's shares of what takes the masks off (round 4).

    :param keys: silo that dropped out after it had shared -> share of the private key of its masks.
    :param seeds: survivor -> share of the seed of its own mask.
    """

    keys: Mapping[str, bytes]
    seeds: Mapping[str, bytes]

    def to_bytes(self, sharers: Iterable[str]) -> bytes:
        """The unmasking as it is sent: one share of each silo that shared, in the job's order."""
        return b"".join((self.seeds if silo in self.seeds else self.keys)[silo] for silo in sharers)

    @classmethod
    def from_bytes(cls, content: bytes, sharers: Sequence[str], survivors: Collection[str]) -> Self:
        """Read an unmasking that `to_bytes` has written.

        :raises Problem: `malformed` where it has another size.
        """
        shares = split_parts(content, SHARE_BYTES, sharers, "an unmasking")
        keys = {silo: share for silo, share in shares.items() if silo not in survivors}
        return cls(keys, {silo: share for silo, share in shares.items() if silo in survivors})


def split_last_message(content: bytes, announces: bool) -> tuple[bytes, bytes]:
    """What a silo sends last in a sum: its shares, and after them its announcement for its next sum.

    :param announces: whether it takes part in another sum; the announcement is empty otherwise.
    """
    place = max(len(content) - (ANNOUNCEMENT_BYTES if announces else 0), 0)
    return content[:place], content[place:]


def split_parts(content: bytes, size: int, silos: Sequence[str], what: str) -> dict[str, bytes]:
    """Silo -> its part, of so many bytes each, in this order.

    :raises Problem: `malformed` where there are more or fewer bytes.
    """
    if len(content) != size * len(silos):
        raise Problem(
            "malformed",
            f"secure aggregation: {what} of {len(content)} bytes, not {size} for each of {len(silos)} silos; send it "
            "anew",
        )
    return {silo: content[size * place : size * (place + 1)] for place, silo in enumerate(silos)}


def survivors_message(context: SumContext, survivors: Collection[str], sent: bytes) -> bytes:
    """What each survivor signs: who survived in this sum, and the digest of what it was sent for it."""
    return canonical_json({"survivors": sorted(survivors), "sent": sent.hex()}) + context.content


def _announcement_content(context: SumContext, silo: str, keys: tuple[bytes, bytes, bytes]) -> bytes:
    return b"".join(keys) + canonical_json({"silo": silo}) + context.content


def verify_confirmation(context: SumContext, silo: str, survivors: Collection[str], content: bytes) -> bytes:
    """The digest of what a silo was sent, which it has signed with who survived.

    :param content: digest and signature.
    :raises Problem: `malformed` for another size, or `signature-invalid`.
    """
    if len(content) != CONFIRMATION_BYTES:
        raise Problem(
            "malformed", f"secure aggregation: the confirmation of {silo} is not {CONFIRMATION_BYTES} bytes"
        )
    sent, signature = content[:SENT_DIGEST_BYTES], content[SENT_DIGEST_BYTES:]
    context.members[silo].verify(SURVIVORS, survivors_message(context, survivors, sent), signature)
    return sent
