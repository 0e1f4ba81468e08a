"""What silos and aggregator tell each other, with a strict reader for each message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from fedsilo.canonical import canonical_json
from fedsilo.errors import Problem, QuorumLost
from fedsilo.secure_aggregation.masks import KEY_BYTES
from fedsilo.secure_aggregation.shamir import SHARE_BYTES
from fedsilo.wire.keys import SIGNATURE_BYTES, SigningKey, VerifyKey

KEYS, SURVIVORS = "fedsilo/secure-keys/v1", "fedsilo/secure-survivors/v1"
"""Domains of signatures."""

FEWEST_SILOS = 3
"""Of two silos each knows the other's summand from the sum."""


@dataclass(frozen=True)
class SumContext:
    """What one sum is of; every key, mask and signature is bound to all of it.

    :param job: uid of the job.
    :param exchange: name of the training exchange whose updates are summed.
    :param members: silo -> the key that signs for it, in the job's order.
    :param threshold: silos without which nothing is unmasked.
    """

    job: str
    exchange: str
    members: Mapping[str, VerifyKey]
    threshold: int

    def __post_init__(self) -> None:
        count = len(self.members)
        if count < FEWEST_SILOS:
            raise Problem(
                "out-of-range",
                f"secure aggregation: {count} silos: of fewer than {FEWEST_SILOS} the sum shows each what the other "
                "sent; have more silos",
            )
        if not count < 2 * self.threshold <= 2 * count:
            raise Problem(
                "out-of-range",
                f"secure aggregation: a threshold of {self.threshold} of {count} silos: must be more than half, so "
                f"that no two lists of survivors are both confirmed; use {count // 2 + 1} or more",
            )

    @property
    def content(self) -> bytes:
        """The same for everybody who takes part, and for no other sum."""
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
        return cls(*keys, key.sign(KEYS, _announced(context, silo, keys)))

    def verify(self, context: SumContext, silo: str) -> None:
        """Return if the silo has announced these keys for this sum.

        :raises Problem: `signature-invalid`.
        """
        keys = self.mask_key, self.share_key, self.commitment
        context.members[silo].verify(KEYS, _announced(context, silo, keys), self.signature)

    def to_dict(self) -> dict[str, bytes]:
        """As it is sent."""
        return {
            "maskKey": self.mask_key,
            "shareKey": self.share_key,
            "commitment": self.commitment,
            "signature": self.signature,
        }

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """What `to_dict` gave; errors as `read_bytes`."""
        sizes = {
            "maskKey": KEY_BYTES,
            "shareKey": KEY_BYTES,
            "commitment": KEY_BYTES,
            "signature": SIGNATURE_BYTES,
        }
        return cls(
            **dict(
                zip(
                    ("mask_key", "share_key", "commitment", "signature"), _fixed(document, sizes), strict=True
                )
            )
        )


@dataclass(frozen=True)
class Unmasking:
    """A silo's shares of what takes the masks off (round 4).

    :param keys: silo that dropped out after it had shared -> share of the private key of its masks.
    :param seeds: survivor -> share of the seed of its own mask.
    """

    keys: Mapping[str, bytes]
    seeds: Mapping[str, bytes]

    def to_dict(self) -> dict[str, dict[str, bytes]]:
        """As it is sent."""
        return {"keys": dict(self.keys), "seeds": dict(self.seeds)}

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """What `to_dict` gave; errors as `read_bytes`."""
        if not isinstance(document, Mapping) or document.keys() != {"keys", "seeds"}:
            raise Problem(
                "malformed", "secure aggregation: an unmasking has keys and seeds, and nothing else"
            )
        return cls(*(read_bytes(document[name], SHARE_BYTES, name) for name in ("keys", "seeds")))


def read_bytes(document: Any, size: int, what: str) -> dict[str, bytes]:
    """Silo -> so many bytes.

    :raises Problem: `malformed`.
    """
    if not isinstance(document, Mapping):
        raise Problem("malformed", f"secure aggregation: {what} is not a mapping of silos")
    for silo, value in document.items():
        if type(silo) is not str or type(value) is not bytes or len(value) != size:
            raise Problem(
                "malformed",
                f"secure aggregation: {what} of {str(silo)[:80]!r} is not {size} bytes; send it anew",
            )
    return dict(document)


def survivors_message(context: SumContext, survivors: Iterable[str]) -> bytes:
    """What each survivor signs: who survived, in this sum."""
    return canonical_json({"survivors": sorted(survivors)}) + context.content


def _announced(context: SumContext, silo: str, keys: tuple[bytes, bytes, bytes]) -> bytes:
    return b"".join(keys) + canonical_json({"silo": silo}) + context.content


def _fixed(document: Any, sizes: Mapping[str, int]) -> list[bytes]:
    if not isinstance(document, Mapping) or document.keys() != sizes.keys():
        raise Problem(
            "malformed", f"secure aggregation: an announcement has {', '.join(sizes)}, and nothing else"
        )
    for name, size in sizes.items():
        if type(document[name]) is not bytes or len(document[name]) != size:
            raise Problem("malformed", f"secure aggregation: {name} is not {size} bytes; send it anew")
    return [document[name] for name in sizes]
