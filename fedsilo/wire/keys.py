"""Ed25519 keys (RFC 8032): who signed, and for which purpose.

Every signature is over `domain`, a zero byte and the message, so that a signature made for one purpose never
passes for another. Messages are small: they carry digests of large things, never the things.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedsilo.errors import FileDamaged, Problem
from fedsilo.files.durable import link, read_file, sync, sync_directory, temporary_file

UPDATE = "fedsilo/update/v1"
TASK = "fedsilo/task/v1"
REQUEST = "fedsilo/request/v1"
PROVENANCE = "fedsilo/provenance/v1"

SIGNATURE_BYTES = 64

MAX_KEY_BYTES = 1 << 16
"""Most bytes of a file with a key in PEM, which has some hundred."""

_PREFIX = "ed25519:"


@dataclass(frozen=True)
class VerifyKey:
    """A public key that verifies Ed25519 signatures.

    :param raw: the 32 bytes of RFC 8032, section 5.1.5.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise Problem("malformed", f"public key: {len(self.raw)} bytes; an Ed25519 key has 32")

    @classmethod
    def from_text(cls, text: str) -> VerifyKey:
        """Read `ed25519:<base64 of the raw key>`.

        :raises Problem: `malformed`.
        """
        try:
            raw = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
            key = cls(raw) if len(raw) == 32 else None
        except ValueError:
            key = None
        if key is None or key.to_text() != text:
            raise Problem(
                "malformed",
                f"public key {text[:80]!r}: write '{_PREFIX}' and then the base64 of its 32 raw bytes",
            )
        return key

    def to_text(self) -> str:
        """The form in which keys stand in manifests and statuses."""
        return _PREFIX + base64.b64encode(self.raw).decode()

    @cached_property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)

    @cached_property
    def key_id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the raw key."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """The first 80 bits of the SHA-256 of the raw key, in groups that two people can compare by telephone."""
        digits = hashlib.sha256(self.raw).hexdigest()[:20]
        return "-".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def verify(self, domain: str, message: bytes, signature: bytes) -> None:
        """Return if the signature is this key's, over this message, in this domain.

        :raises Problem: `signature-invalid`.
        """
        try:
            self._key.verify(signature, _signed_bytes(domain, message))
        except InvalidSignature:
            raise Problem(
                "signature-invalid",
                f"{domain}: the signature is not by key {self.key_id} over these bytes; check that both sides"
                " hold the same key",
            ) from None


class SigningKey:
    """A private Ed25519 key; it never leaves the process except by `save` and `to_pem`."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def generate(cls) -> SigningKey:
        """A new random key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """The key of a secret of 32 bytes (RFC 8032, section 5.1.5)."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read an unencrypted PKCS #8 PEM file.

        :raises Problem: `malformed` when the file holds anything else.
        :raises FileDamaged: when it is missing, no file, or may not be read.
        """
        remedy = "put the key there"
        pem = read_file(path, remedy, MAX_KEY_BYTES, links=True)
        if pem is None:
            raise FileDamaged(f"{path}: is missing; {remedy}")
        return cls.from_pem(pem, f"key file {path}")

    @classmethod
    def load_all(cls, path: Path) -> list[SigningKey]:
        """The key of a file, and those of the other `.pem` files beside it, which are its owner's earlier or next ones.

        What is no key there is nobody's, and left out.

        :raises Problem: `malformed` when the file itself holds anything else.
        :raises FileDamaged: when it is missing, no file, or may not be read.
        """
        found = [cls.load(path)]
        for other in sorted(path.parent.glob("*.pem")):
            with suppress(Problem, FileDamaged):
                if other.name != path.name:
                    found.append(cls.load(other))
        return found

    @classmethod
    def from_pem(cls, pem: bytes, source: str) -> SigningKey:
        """Read an unencrypted key in PKCS #8 PEM.

        :param source: where it comes from, for the error.
        :raises Problem: `malformed` when it is anything else.
        """
        from cryptography.hazmat.primitives import serialization  # not above: it imports ciphers

        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise Problem(
                "malformed", f"{source}: not an unencrypted Ed25519 key in PKCS #8 PEM; make a new one"
            )
        return cls(key)

    def save(self, path: Path) -> None:
        """Write the key as PKCS #8 PEM, readable by its owner only.

        :raises FileExistsError: when the path exists; a key in use is never overwritten.
        """
        with temporary_file(path.parent, 0o600) as (file, temporary):
            file.write(self.to_pem())
            sync(file, temporary)
            link(temporary, path)  # unlike a rename, this fails where another process was first
        sync_directory(path.parent)

    def to_pem(self) -> bytes:
        """The key as unencrypted PKCS #8 PEM."""
        from cryptography.hazmat.primitives import serialization

        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def verify_key(self) -> VerifyKey:
        """Public half of the key."""
        return VerifyKey(self._key.public_key().public_bytes_raw())

    def sign(self, domain: str, message: bytes) -> bytes:
        """The signature of 64 bytes over the domain and the message."""
        return self._key.sign(_signed_bytes(domain, message))


def sharing(keys: Mapping[str, Hashable]) -> tuple[str, str] | None:
    """The first two names that have one key, in the order of the names; None where each has its own.

    :param keys: name -> key, in whatever form.
    """
    first: dict[Hashable, str] = {}
    return next(
        ((other, name) for name, key in keys.items() if (other := first.setdefault(key, name)) != name), None
    )


def _signed_bytes(domain: str, message: bytes) -> bytes:
    return domain.encode() + b"\0" + message
