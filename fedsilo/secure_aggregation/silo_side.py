"""The silo's side of one sum: what it sends in each round, and what it refuses to.

Every message follows from the secrets and from what the silo was told, so that a crash and a repeated request give
the same bytes. What the silo was told in a round is kept as a digest before it answers: another list of keys, another
vector or another list of survivors is refused, since two answers under one mask would take it off.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsilo.canonical import canonical_json
from fedsilo.errors import PolicyRefused, Problem
from fedsilo.secure_aggregation.masks import KEY_BYTES, add_mask, agreed_secret, public_of
from fedsilo.secure_aggregation.messages import (
    SURVIVORS,
    KeyAnnouncement,
    SumContext,
    Unmasking,
    survivors_message,
    verify_confirmation,
)
from fedsilo.secure_aggregation.shamir import SHARE_BYTES, split
from fedsilo.wire.keys import SigningKey

SEALED_BYTES = 2 * SHARE_BYTES + 16
"""Two shares, encrypted and authenticated."""


@dataclass(frozen=True)
class SiloSide:
    """One silo's state in a secure sum, which is to be on the disk before the message that comes with it is sent.

    :param mask_key: private key of the masks that it has in common with others.
    :param share_key: private key by which shares are hidden.
    :param seed: of its own mask.
    :param told: round -> digest of what it was told then.
    """

    context: SumContext
    silo: str
    mask_key: bytes
    share_key: bytes
    seed: bytes
    told: Mapping[str, bytes]

    @classmethod
    def begin(cls, context: SumContext, silo: str) -> Self:
        """New secrets of the operating system."""
        mask_key, share_key, seed = (secrets.token_bytes(KEY_BYTES) for _ in range(3))
        return cls(context, silo, mask_key, share_key, seed, {})

    def announcement(self, key: SigningKey) -> KeyAnnouncement:
        """Announce the silo's keys, under its signing key (round 0)."""
        commitment = hashlib.sha256(self.seed).digest()
        keys = public_of(self.mask_key), public_of(self.share_key), commitment
        return KeyAnnouncement.sign(self.context, self.silo, keys, key)

    def shares(self, announced: Mapping[str, KeyAnnouncement]) -> tuple[Self, dict[str, bytes]]:
        """Share this silo's secrets with every other silo, so that only that silo can read its shares (round 1).

        :param announced: of all silos that did.
        :raises Problem: `signature-invalid` or `malformed`.
        :raises QuorumLost: too few announced keys.
        :raises PolicyRefused: this silo has answered another list.
        """
        context = self.context
        self._require_own(announced)
        for silo, one in announced.items():
            if silo not in context.members:
                raise Problem("malformed", f"secure aggregation: {silo} is not a member of this sum")
            one.verify(context, silo)
        context.require_enough(announced, "announced keys")
        public = [key for one in announced.values() for key in (one.mask_key, one.share_key)]
        if len(set(public)) < len(public):
            raise Problem(
                "malformed", "secure aggregation: two silos announced the same key; nothing is sent"
            )
        following = self._record_digest("keys", _digest_of(announced))
        points = [context.point(silo) for silo in announced]
        divided = [
            split(secret, context.threshold, points, self._source(name))
            for name, secret in (("mask key", self.mask_key), ("seed", self.seed))
        ]
        return following, {
            silo: self._seal(silo, one, b"".join(part[context.point(silo)] for part in divided))
            for silo, one in announced.items()
            if silo != self.silo
        }

    def mask_vector(
        self,
        announced: Mapping[str, KeyAnnouncement],
        sealed: Mapping[str, bytes],
        vector: np.ndarray,
        sent: bytes,
    ) -> tuple[Self, np.ndarray]:
        """Mask the vector with the masks that the silo has in common with each silo that shared, and with its own
        (round 2).

        The masks in common follow from `sent` too, so those of two silos that were sent different things do not cancel:
        an aggregator that sends one silo the model, and others something to which it knows the answer, has a sum of
        random numbers, whoever helps to unmask it (against Pasquini, Francati, Ateniese, "Eluding Secure Aggregation in
        Federated Learning via Model Inconsistency", CCS 2022).

        :param sealed: of each other silo that shared, what it sealed for this one.
        :param vector: (n,) uint64.
        :param sent: SHA-256 of all that this silo was sent, trees and settings, from which the vector follows.
        :raises Problem: `malformed` for shares that were not sealed for this silo in this sum.
        :raises QuorumLost: too few silos shared their secrets.
        :raises PolicyRefused: this silo has answered another list, or with another vector.
        """
        context = self.context
        self._require_told("keys", _digest_of(announced))
        context.require_enough([self.silo, *sealed], "shared their secrets")
        for silo in sealed:
            self._unseal(silo, announced, sealed)
        following = self._record_digest("sharers", _digest_of_sealed(sealed))
        following = following._record_digest(
            "vector", hashlib.sha256(np.ascontiguousarray(vector).data).digest()
        )
        following = following._record_digest("sent", sent)
        total = vector.copy()
        add_mask(total, own_mask(self.seed, context), 1)
        for silo in sealed:
            secret = pair_mask(self.mask_key, announced[silo].mask_key, context, sent)
            add_mask(total, secret, 1 if context.point(self.silo) < context.point(silo) else -1)
        return following, total

    def confirmation(
        self, sharers: Mapping[str, bytes], survivors: list[str], key: SigningKey
    ) -> tuple[Self, bytes]:
        """Confirm what this silo was sent, with a signature over that and who survived (round 3).

        :param sharers: what `masked` was given as `sealed`. Another silo among them would be one with which this one
            has no mask in common: a list of survivors that consists of such silos would leave its vector bare.
        :param survivors: silos whose masked vectors are there.
        :raises Problem: `malformed`.
        :raises QuorumLost: too few survivors.
        :raises PolicyRefused: this silo has answered another list.
        """
        if not set(survivors) <= {self.silo, *sharers} or self.silo not in survivors:
            raise Problem(
                "malformed", "secure aggregation: survivors are silos that shared, this one among them"
            )
        if "vector" not in self.told:
            raise Problem("malformed", "secure aggregation: this silo has sent no vector yet")
        self._require_told("sharers", _digest_of_sealed(sharers))
        self.context.require_enough(survivors, "sent a vector")
        sent = self.told["sent"]
        message = survivors_message(self.context, survivors, sent)
        following = self._record_digest("survivors", hashlib.sha256(message).digest())
        return following, sent + key.sign(SURVIVORS, message)

    def unmasking(
        self,
        announced: Mapping[str, KeyAnnouncement],
        sealed: Mapping[str, bytes],
        survivors: list[str],
        confirmed: Mapping[str, bytes],
    ) -> Unmasking:
        """Give one kind of share for each silo that shared, and never the other (round 4).

        As many as the threshold must have been sent what this silo was sent: where masks cannot cancel, nobody gives
        shares for the sum.

        :param confirmed: survivor -> its confirmation of the same list.
        :raises Problem: `signature-invalid` or `malformed`.
        :raises QuorumLost: too few survivors were sent what this silo was sent.
        :raises PolicyRefused: this silo has answered another list.
        """
        if "sent" not in self.told:
            raise Problem("malformed", "secure aggregation: this silo has sent no vector yet")
        sent = self.told["sent"]
        message = survivors_message(self.context, survivors, sent)
        self._require_told("survivors", hashlib.sha256(message).digest())
        self._require_told("keys", _digest_of(announced))
        self._require_told("sharers", _digest_of_sealed(sealed))
        if not set(confirmed) <= set(survivors):
            raise Problem(
                "malformed", "secure aggregation: a silo that did not survive has confirmed the list"
            )
        alike = [
            silo
            for silo, content in confirmed.items()
            if verify_confirmation(self.context, silo, survivors, content) == sent
        ]
        self.context.require_enough(alike, "confirmed the survivors and were sent the same")
        keys, seeds = dict[str, bytes](), dict[str, bytes]()
        for silo in [self.silo, *sealed]:
            both = self._own_shares(announced) if silo == self.silo else self._unseal(silo, announced, sealed)
            if silo in survivors:
                seeds[silo] = both[SHARE_BYTES:]
            else:
                keys[silo] = both[:SHARE_BYTES]
        return Unmasking(keys, seeds)

    def to_dict(self) -> dict[str, Any]:
        """The silo's state as it is kept, beside the context."""
        return {
            "maskKey": self.mask_key,
            "shareKey": self.share_key,
            "seed": self.seed,
            "told": dict(self.told),
        }

    @classmethod
    def from_dict(cls, context: SumContext, silo: str, document: Mapping[str, Any]) -> Self:
        """Read the silo's state that `to_dict` has written."""
        return cls(
            context, silo, document["maskKey"], document["shareKey"], document["seed"], dict(document["told"])
        )

    def _own_shares(self, announced: Mapping[str, KeyAnnouncement]) -> bytes:
        points, own = [self.context.point(silo) for silo in announced], self.context.point(self.silo)
        return b"".join(
            split(secret, self.context.threshold, points, self._source(name))[own]
            for name, secret in (("mask key", self.mask_key), ("seed", self.seed))
        )

    def _source(self, name: str) -> bytes:
        return hashlib.sha256(
            b"\0".join([name.encode(), self.mask_key + self.seed + self.share_key, self.context.content])
        ).digest()

    def _seal(self, silo: str, one: KeyAnnouncement, shares: bytes) -> bytes:
        secret = agreed_secret(self.share_key, one.share_key, f"shares of {self.silo}", self.context.content)
        return ChaCha20Poly1305(secret).encrypt(bytes(12), shares, self._associated_data(self.silo, silo))

    def _unseal(
        self, silo: str, announced: Mapping[str, KeyAnnouncement], sealed: Mapping[str, bytes]
    ) -> bytes:
        if silo not in announced or silo == self.silo:
            raise Problem("malformed", f"secure aggregation: {silo} shared secrets and announced no keys")
        secret = agreed_secret(
            self.share_key, announced[silo].share_key, f"shares of {silo}", self.context.content
        )
        try:
            return ChaCha20Poly1305(secret).decrypt(
                bytes(12), sealed[silo], self._associated_data(silo, self.silo)
            )
        except InvalidTag:
            raise Problem(
                "malformed",
                f"secure aggregation: the shares of {silo} were not sealed for this silo in this sum",
            ) from None

    @staticmethod
    def _associated_data(sender: str, recipient: str) -> bytes:
        return canonical_json({"from": sender, "to": recipient})

    def _require_own(self, announced: Mapping[str, KeyAnnouncement]) -> None:
        own = announced.get(self.silo)
        if own is None or (own.mask_key, own.share_key) != (
            public_of(self.mask_key),
            public_of(self.share_key),
        ):
            raise Problem(
                "malformed", "secure aggregation: this silo's own keys are not among those announced"
            )

    def _record_digest(self, round: str, digest: bytes) -> Self:
        if self.told.get(round, digest) != digest:
            raise PolicyRefused(
                f"secure aggregation: this silo has answered with other {round}; a second answer would take its mask "
                "off",
            )
        return replace(self, told={**self.told, round: digest})

    def _require_told(self, round: str, digest: bytes) -> None:
        if self.told.get(round) != digest:
            raise PolicyRefused(f"secure aggregation: these are not the {round} that this silo answered")


def pair_mask(private: bytes, public: bytes, context: SumContext, sent: bytes) -> bytes:
    """The secret of the mask that two silos have in common if both were sent the same.

    :param private: mask key of the one.
    :param public: that of the other.
    :param sent: SHA-256 of what the one was sent.
    """
    return agreed_secret(private, public, "mask", context.content + sent)


def own_mask(seed: bytes, context: SumContext) -> bytes:
    """The secret of a silo's own mask."""
    return hashlib.sha256(b"fedsilo/own-mask/v2\0" + seed + context.content).digest()


def _digest_of(announced: Mapping[str, KeyAnnouncement]) -> bytes:
    digest = hashlib.sha256()
    for silo, one in sorted(announced.items()):
        digest.update(canonical_json({"silo": silo}) + one.to_bytes())
    return digest.digest()


def _digest_of_sealed(sealed: Mapping[str, bytes]) -> bytes:
    digest = hashlib.sha256(canonical_json({"sharers": sorted(sealed)}))
    digest.update(b"".join(sealed[silo] for silo in sorted(sealed)))
    return digest.digest()
