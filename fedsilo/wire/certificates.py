"""X.509 certificates for the aggregator's TLS: a small authority per job, and what it issues.

They carry every extension that OpenSSL's strict mode, which Python 3.13 switches on, asks for (RFC 5280,
section 4.2: key identifiers, basic constraints, key usage).
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsilo.errors import ManifestInvalid

AUTHORITY_LIFETIME = datetime.timedelta(days=365)
SERVER_LIFETIME = datetime.timedelta(days=90)

_BACKDATED = datetime.timedelta(minutes=5)  # for silos whose clock is behind


@dataclass(frozen=True)
class Authority:
    """A certificate authority.

    :param cert_pem: what silos trust.
    :param key_pem: its private key, unencrypted PKCS #8.
    """

    cert_pem: bytes
    key_pem: bytes


def make_authority() -> Authority:
    """A new authority, valid for a year, that may issue server certificates but no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("fedsilo authority")
    now = datetime.datetime.now(datetime.UTC)
    builder = _builder(name, name, key.public_key(), key.public_key(), now, now + AUTHORITY_LIFETIME)
    cert = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(cert.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def issue_server(authority: Authority, names: Sequence[str]) -> tuple[bytes, bytes]:
    """A server's certificate and its private key, both PEM, valid for 90 days.

    :param names: DNS names and IP addresses under which silos reach the server.
    :raises ManifestInvalid: when there are none, or one is neither.
    """
    if not names:
        raise ManifestInvalid(
            "server certificate: names is empty; give the DNS names and addresses of the server"
        )
    issuer = x509.load_pem_x509_certificate(authority.cert_pem)
    issuer_key = serialization.load_pem_private_key(authority.key_pem, password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ManifestInvalid("authority: key_pem is no elliptic-curve key; use one that make_authority made")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    end = min(now + SERVER_LIFETIME, issuer.not_valid_after_utc)
    builder = _builder(
        _name("fedsilo aggregator"), issuer.subject, key.public_key(), issuer_key.public_key(), now, end
    )
    cert = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return cert.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        if name:
            return x509.DNSName(name)
    except ValueError:
        pass
    raise ManifestInvalid(f"server certificate: name is {name!r}; give a DNS name in ASCII or an IP address")


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
