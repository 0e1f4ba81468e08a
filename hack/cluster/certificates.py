"""Certificates and kubeconfigs of one control plane (Kubernetes: "PKI certificates and requirements").

User and groups of a client are its certificate's common name and organisations.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)
ADMINISTRATORS = "system:masters"


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    cert: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> None:
        """Write `name`.crt and `name`.key, the key readable by its owner only."""
        (directory / f"{name}.crt").write_bytes(self.cert)
        write_private(directory / f"{name}.key", self.key)


@dataclass(frozen=True)
class Authority:
    """A certificate authority that issues for clients and servers alike."""

    name: str
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def pair(self) -> Pair:
        """The authority's own certificate and key."""
        usage = _usage(sign=True)
        cert = self._builder(self.name, (), self._key.public_key())
        cert = cert.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return Pair(
            _pem(cert.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())),
            _key_pem(self._key),
        )

    def issue(self, user: str, groups: Sequence[str] = (), addresses: Sequence[str] = ()) -> Pair:
        """A certificate for `user` of `groups`, which may serve under `addresses` (DNS names or IP addresses)."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        cert = (
            self._builder(user, groups, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        )
        if addresses:
            cert = cert.add_extension(
                x509.SubjectAlternativeName([_address(a) for a in addresses]), critical=False
            )
        return Pair(_pem(cert.sign(self._key, hashes.SHA256())), _key_pem(key))

    def _builder(
        self, user: str, groups: Sequence[str], public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(user, groups))
            .issuer_name(_name(self.name, ()))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )


def write_control_plane(directory: Path, addresses: Sequence[str]) -> Authority:
    """Write what an API server and a controller manager need; the authority, to issue more.

    :param addresses: names and addresses under which the API server is reached.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority("fedsilo-cluster")
    authority.pair().write(directory, "ca")
    authority.issue("kube-apiserver", addresses=addresses).write(directory, "apiserver")
    authority.issue("kube-apiserver-kubelet-client", [ADMINISTRATORS]).write(directory, "kubelet-client")
    authority.issue("fedsilo-admin", [ADMINISTRATORS]).write(directory, "admin")
    proxy = Authority("front-proxy")  # a separate authority: its clients may claim to be anybody
    proxy.pair().write(directory, "front-proxy-ca")
    proxy.issue("front-proxy-client").write(directory, "front-proxy-client")
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(directory / "service-account.key", _key_pem(key))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (directory / "service-account.pub").write_bytes(public)
    return authority


def write_kubeconfig(path: Path, server: str, authority: bytes, client: Pair) -> None:
    """Write a kubeconfig that needs no other file.

    :param authority: the PEM certificate of the API server's authority.
    """
    entry = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fedsilo",
        "clusters": [
            {"name": "fedsilo", "cluster": {"server": server, "certificate-authority-data": _text(authority)}}
        ],
        "users": [
            {
                "name": "fedsilo",
                "user": {"client-certificate-data": _text(client.cert), "client-key-data": _text(client.key)},
            }
        ],
        "contexts": [{"name": "fedsilo", "context": {"cluster": "fedsilo", "user": "fedsilo"}}],
    }
    write_private(path, yaml.safe_dump(entry, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from the first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
