"""A job's keys, derived from the operator's master key: reproducible at any time, never read back.

HKDF-SHA256 (RFC 5869) with a label per purpose and the job's uid. A job that is created anew has another uid, and so
other keys.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsilo.api.observed import Object
from fedsilo.errors import ManifestInvalid
from fedsilo.wire import SigningKey, issue_server, make_authority
from fedsilo.wire.certificates import AUTHORITY_LIFETIME
from fedsilo_operator.cluster.interface import Cluster, Conflict, NotFound
from fedsilo_operator.names import MASTER_KEY
from fedsilo_operator.objects import COMPONENT, MANAGED_BY, MANAGER, SECRET, Ref

MASTER_KEY_BYTES = 32
ENTRY = "master"
"""Entry of the Secret that holds the master key."""

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256, SP 800-186, section 3.2.1.3


@dataclass(frozen=True)
class JobKeys:
    """The keys with which one job signs and serves; private halves are PKCS #8 PEM.

    :param task_key: private key that signs tasks.
    :param verify_key: its public half, as it stands in manifests.
    :param ca_certificate: what silos trust, PEM.
    :param certificate: the aggregator's, PEM.
    :param key: its private key.
    """

    task_key: bytes = field(repr=False)
    verify_key: str
    ca_certificate: str
    certificate: bytes
    key: bytes = field(repr=False)


def job_keys(master: bytes, uid: str, created: datetime, names: Sequence[str]) -> JobKeys:
    """The keys of a job: the same bytes every time.

    :param created: the job's creationTimestamp; the certificates begin then and last a year.
    :param names: DNS names and addresses under which silos reach the aggregator.
    """
    task_key = _task_key(master, uid)
    authority = make_authority(_curve_key(master, "authority", uid), created)
    certificate, key = issue_server(
        authority,
        names,
        key=_curve_key(master, "server", uid),
        begin=created,
        lifetime=AUTHORITY_LIFETIME,
    )
    return JobKeys(
        task_key=task_key.to_pem(),
        verify_key=task_key.verify_key.to_text(),
        ca_certificate=authority.cert_pem.decode(),
        certificate=certificate,
        key=key,
    )


def verify_key(master: bytes, uid: str) -> str:
    """The public half of the key that signs a job's tasks, as it stands in manifests."""
    return _task_key(master, uid).verify_key.to_text()


def _task_key(master: bytes, uid: str) -> SigningKey:
    return SigningKey.from_seed(_derive(master, "task key", uid, 32))


def _derive(master: bytes, purpose: str, uid: str, size: int) -> bytes:
    info = f"fedsilo/job/v1\0{purpose}\0{uid}".encode()
    return HKDF(hashes.SHA256(), size, salt=None, info=info).derive(master)


def _curve_key(master: bytes, purpose: str, uid: str) -> ec.EllipticCurvePrivateKey:
    """A P-256 key from 384 bits: 128 more than the order has, so that the bias is negligible (FIPS 186-5, A.2.1)."""
    number = int.from_bytes(_derive(master, purpose, uid, 48)) % (_ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


async def load_master(cluster: Cluster, namespace: str) -> bytes:
    """The operator's master key, which is created if it does not exist.

    :raises ManifestInvalid: when the Secret holds something else; it is never replaced.
    """
    ref = Ref(namespace, MASTER_KEY)
    try:
        return _master_in(await cluster.get(SECRET, ref))
    except NotFound:
        pass
    try:
        return _master_in(await cluster.create(_master_secret(ref)))
    except Conflict:  # another operator was first
        return _master_in(await cluster.get(SECRET, ref))


def _master_in(secret: Object) -> bytes:
    text = (secret.get("data") or {}).get(ENTRY, "")
    try:
        master = base64.b64decode(text, validate=True)
    except binascii.Error:
        master = b""
    if len(master) != MASTER_KEY_BYTES:
        namespace, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
        raise ManifestInvalid(
            f"Secret {namespace}/{name}: data.{ENTRY} has not {MASTER_KEY_BYTES} bytes; restore it from a backup, or "
            "delete the Secret while no job runs"
        )
    return master


def _master_secret(ref: Ref) -> Object:
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "labels": {MANAGED_BY: MANAGER, COMPONENT: "operator"},
        },
        "type": "Opaque",
        "data": {ENTRY: base64.b64encode(secrets.token_bytes(MASTER_KEY_BYTES)).decode()},
    }
