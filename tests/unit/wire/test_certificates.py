from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedsilo.errors import ManifestInvalid
from fedsilo.wire import Authority, issue_server, make_authority


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_authority()


def handshake(tmp_path: Path, authority: Authority, trusted: Authority, hostname: str) -> str | None:
    """Connect a strict client to a server through memory, and return the TLS version."""
    cert, key = issue_server(authority, ["aggregator.federation.svc", "127.0.0.1", "::1"])
    (tmp_path / "cert.pem").write_bytes(cert)
    (tmp_path / "key.pem").write_bytes(key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    client_context.load_verify_locations(cadata=trusted.cert_pem.decode())
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(up, down, server_side=True)
    client = client_context.wrap_bio(down, up, server_hostname=hostname)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.version()


@pytest.mark.parametrize("hostname", ["aggregator.federation.svc", "127.0.0.1", "::1"])
def test_a_strict_client_connects(tmp_path: Path, authority: Authority, hostname: str) -> None:
    assert handshake(tmp_path, authority, authority, hostname) == "TLSv1.3"


def test_another_name_or_authority_is_refused(tmp_path: Path, authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, authority, authority, "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, authority, make_authority(), "127.0.0.1")


@pytest.mark.parametrize("names", [[], [""], ["größe.example"]])
def test_names_must_be_names(authority: Authority, names: list[str]) -> None:
    with pytest.raises(ManifestInvalid, match=r"server certificate: name"):
        issue_server(authority, names)


def test_the_same_keys_and_beginning_give_the_same_bytes() -> None:
    begin = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def issue(*names: str) -> tuple[bytes, bytes]:
        return issue_server(make_authority(key, begin), names, key=server_key, begin=begin)

    assert make_authority(key, begin) == make_authority(key, begin)
    assert issue("one.example") == issue("one.example")
    one, other = (x509.load_pem_x509_certificate(issue(name)[0]) for name in ("one.example", "two.example"))
    assert one.serial_number != other.serial_number
    assert one.not_valid_before_utc == begin - timedelta(minutes=5)
    assert one.not_valid_after_utc == begin + timedelta(days=90)


def test_a_server_does_not_outlive_its_authority(authority: Authority) -> None:
    issuer = x509.load_pem_x509_certificate(authority.cert_pem)
    certificate, _ = issue_server(authority, ["one.example"], lifetime=timedelta(days=1000))
    assert x509.load_pem_x509_certificate(certificate).not_valid_after_utc == issuer.not_valid_after_utc
