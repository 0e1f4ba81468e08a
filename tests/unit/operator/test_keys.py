from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo.errors import ManifestInvalid
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import ClusterError, Conflict, NotFound
from fedsilo_operator.keys import job_keys, load_master
from fedsilo_operator.names import MASTER_KEY
from fedsilo_operator.objects import SECRET, Kind, Ref
from tests.operator_fakes.cluster import FakeCluster

CREATED_TIME = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAMES = ["digits-aggregator.federation.svc", "10.96.0.7", "fd00::7"]

masters = st.binary(min_size=32, max_size=32)
uids = st.uuids().map(str)
times = st.datetimes(
    datetime(2024, 1, 1),
    datetime(2040, 1, 1),
    timezones=st.just(UTC),
).map(lambda moment: moment.replace(microsecond=0))


@settings(max_examples=50)
@given(master=masters, uid=uids, created=times)
def test_the_same_bytes_every_time(master: bytes, uid: str, created: datetime) -> None:
    assert job_keys(master, uid, created, NAMES) == job_keys(master, uid, created, NAMES)


@settings(max_examples=30)
@given(master=masters, uids=st.lists(uids, min_size=2, max_size=2, unique=True))
def test_another_job_has_other_keys(master: bytes, uids: list[str]) -> None:
    one, other = (job_keys(master, uid, CREATED_TIME, NAMES) for uid in uids)
    for name in vars(one):
        assert getattr(one, name) != getattr(other, name), name


def test_every_key_of_a_job_is_another() -> None:
    keys = job_keys(b"m" * 32, "uid", CREATED_TIME, NAMES)
    authority = x509.load_pem_x509_certificate(keys.ca_certificate.encode())
    server = x509.load_pem_x509_certificate(keys.certificate)
    assert authority.public_key() != server.public_key()
    assert load_pem_private_key(keys.key, None).public_key() == server.public_key()
    assert SigningKey.from_pem(keys.task_key, "task key").verify_key.to_text() == keys.verify_key


def test_known_bytes() -> None:
    """What an older release has derived, a newer one must derive too, or running jobs lose their trust."""
    keys = job_keys(bytes(range(32)), "0b1c2d3e-0000-4000-8000-000000000001", CREATED_TIME, NAMES)
    assert keys.verify_key == "ed25519:RdhDGACjYJRYL8mUR5V4OrJDhNIeR8TssTQ5MmbYWgA="
    digest = hashlib.sha256(keys.ca_certificate.encode() + keys.certificate + keys.key).hexdigest()
    assert digest == "ab79b29f82b2f8bb33105621878d5fc441b28d0b7e11f704d76cd214a22fea3c"


def test_certificates_last_from_the_job_s_creation_for_a_year() -> None:
    keys = job_keys(b"m" * 32, "uid", CREATED_TIME, NAMES)
    authority = x509.load_pem_x509_certificate(keys.ca_certificate.encode())
    server = x509.load_pem_x509_certificate(keys.certificate)
    for certificate in (authority, server):
        assert certificate.not_valid_before_utc == CREATED_TIME - timedelta(minutes=5)
        assert certificate.not_valid_after_utc == CREATED_TIME + timedelta(days=365)
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == NAMES


def test_python_s_own_client_trusts_the_authority() -> None:
    context = ssl.create_default_context(
        cadata=job_keys(b"m" * 32, "uid", CREATED_TIME, NAMES).ca_certificate
    )
    assert len(context.get_ca_certs()) == 1


def load(cluster: FakeCluster) -> bytes:
    return asyncio.run(load_master(cluster, "fedsilo-system"))


def test_the_master_key_is_made_once() -> None:
    cluster = FakeCluster()
    master = load(cluster)
    assert len(master) == 32
    assert load(cluster) == master
    assert load(FakeCluster()) != master


def test_an_operator_that_comes_second_takes_the_key_of_the_first() -> None:
    first, master = FakeCluster(), b""

    class LateCluster(FakeCluster):
        """Another operator makes the key between this one's look and its own try."""

        @override
        async def get(self, kind: Kind, ref: Ref) -> Object:
            try:
                return await super().get(kind, ref)
            except NotFound:
                nonlocal master
                master = await load_master(first, "fedsilo-system")
                self.put(first.peek(SECRET, Ref("fedsilo-system", MASTER_KEY)))
                raise

    assert load(LateCluster()) == master != b""


@pytest.mark.parametrize("data", [{}, {"master": "bm8="}, {"master": "no base64!"}, {"other": "AAAA"}, None])
def test_a_key_that_is_none_is_not_replaced(data: dict[str, str] | None) -> None:
    cluster = FakeCluster()
    metadata = {"name": MASTER_KEY, "namespace": "fedsilo-system"}
    cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data or {}})
    with pytest.raises(
        ManifestInvalid, match=r"Secret fedsilo-system/fedsilo-operator-key: .* 32 bytes; restore"
    ):
        load(cluster)
    assert not cluster.writes


def test_other_errors_are_the_caller_s() -> None:
    cluster = FakeCluster(faults=lambda verb, kind: Conflict("no") if verb == "get" else None)
    with pytest.raises(ClusterError):
        load(cluster)


def test_no_secret_stands_in_a_representation() -> None:
    keys = job_keys(b"m" * 32, "uid", CREATED_TIME, NAMES)
    assert "PRIVATE" not in repr(keys)
    assert base64.b64encode(keys.task_key).decode() not in repr(keys)
