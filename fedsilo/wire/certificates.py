"""X.509 certificates for the aggregator's TLS: a small authority per job, and what it issues.

The same keys and the same start give the same bytes every time: signatures are deterministic (RFC 6979), and
the serial number follows from what the certificate says.

They carry every extension that OpenSSL's strict mode, which Python 3.13 switches on, asks for (RFC 5280,
section 4.2: key identifiers, basic constraints, key usage).
"""

from __future__ import annotations

import datetime
import hashlib
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

_BACKDATING_INTERVAL = datetime.timedelta(minutes=5)  # for silos whose clock is behind


@dataclass(frozen=True)
class Authority:
    """A certificate authority for TLS, with its private key.

    :param cert_pem: what silos trust.
    :param key_pem: its private key, unencrypted PKCS #8.
    """

    cert_pem: bytes
    key_pem: bytes


def make_authority(
    key: ec.EllipticCurvePrivateKey | None = None, begin: datetime.datetime | None = None
) -> Authority:
    """An authority, valid for a year, that may issue server certificates but no further authority.

    :param key: its private key; a new one when None.
    :param begin: when it begins; now when None. Five minutes before count too, for silos whose clock is behind.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    begin = begin or datetime.datetime.now(datetime.UTC)
    name = _name("fedsilo authority")
    builder = (
        _builder(name, name, key.public_key(), key.public_key(), begin, begin + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    return Authority(_signed_certificate(builder, key, b"authority"), _private_pem(key))


def issue_server(
    authority: Authority,
    names: Sequence[str],
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    begin: datetime.datetime | None = None,
    lifetime: datetime.timedelta = SERVER_LIFETIME,
) -> tuple[bytes, bytes]:
    """A server's certificate and its private key, both PEM; it ends with its authority at the latest.

    :param names: DNS names and IP addresses under which silos reach the server.
    :param key: the server's private key; a new one when None.
    :param begin: when it begins, as for the authority.
    :raises ManifestInvalid: when there are no names, or one is neither.
    """
    if not names:
        raise ManifestInvalid(
            "server certificate: names is empty; give the DNS names and addresses of the server"
        )
    issuer = x509.load_pem_x509_certificate(authority.cert_pem)
    issuer_key = serialization.load_pem_private_key(authority.key_pem, password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ManifestInvalid("authority: key_pem is no elliptic-curve key; use one that make_authority made")
    key = key or ec.generate_private_key(ec.SECP256R1())
    begin = begin or datetime.datetime.now(datetime.UTC)
    end = min(begin + lifetime, issuer.not_valid_after_utc)
    builder = (
        _builder(
            _name("fedsilo aggregator"), issuer.subject, key.public_key(), issuer_key.public_key(), begin, end
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )
    content = "\n".join(["server", begin.isoformat(), *names]).encode()
    return _signed_certificate(builder, issuer_key, content + _public_der(key)), _private_pem(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    begin: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .not_valid_before(begin - _BACKDATING_INTERVAL)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _signed_certificate(
    builder: x509.CertificateBuilder, issuer_key: ec.EllipticCurvePrivateKey, content: bytes
) -> bytes:
    """The certificate in PEM; its serial number has 152 bits of a digest, so different contents never share one."""
    serial = int.from_bytes(hashlib.sha256(_public_der(issuer_key) + content).digest()[:19]) or 1
    cert = builder.serial_number(serial).sign(issuer_key, hashes.SHA256(), ecdsa_deterministic=True)
    return cert.public_bytes(serialization.Encoding.PEM)


def _public_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
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
