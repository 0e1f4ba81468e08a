"""Whose certificates count outside of an institution.

With an authority of the hub's own: that one, and in addition the file of `SSL_CERT_FILE`, for a proxy that looks into
TLS and shows certificates of the institution's own. Without one: the system's authorities, where OpenSSL's variable
`SSL_CERT_FILE` stands for the system's file. TLS protects no decision: messages are signed inside of it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path

from fedsilo.errors import ManifestInvalid

log = logging.getLogger("fedsilo.hub")

VARIABLE = "SSL_CERT_FILE"

_Stamp = tuple[int, int, int] | None


class TlsContextCache:
    """A context for TLS, made anew when the file with the institution's or the system's authorities has changed.

    :param pem: the hub's own authority; None where its certificate is an ordinary one.
    :param origin: what named it, for errors.
    """

    def __init__(self, pem: str | None, origin: str, environment: Mapping[str, str]) -> None:
        self._pem, self._origin = pem, origin
        named = environment.get(VARIABLE)
        self._named = Path(named) if named else None
        self._file = self._named
        if pem is None and named is None and (system := ssl.get_default_verify_paths().cafile):
            self._file = Path(system)
        self._stamp = self._read_stamp()
        self._context = self._load()

    @property
    def private(self) -> bool:
        """Whether the hub has an authority of its own."""
        return self._pem is not None

    @property
    def whose(self) -> str:
        """The certificate authorities that are trusted for the hub, in words."""
        hub = "the invitation's authority" if self.private else "one of the system's authorities"
        return hub if self._named is None else f"{hub} or one of {VARIABLE}"

    def context(self) -> ssl.SSLContext:
        """The one for the next connection; a file that cannot be read now leaves that from before in force."""
        stamp = self._read_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._load()
            except ManifestInvalid as error:
                log.warning("%s; the authorities from before stay in force", error)
        return self._context

    def _load(self) -> ssl.SSLContext:
        try:
            made = ssl.create_default_context(cadata=self._pem)
        except (ssl.SSLError, ValueError) as error:
            raise ManifestInvalid(
                f"{self._origin}: its authority is no certificate in PEM ({error}); ask the hub for it again"
            ) from error
        # Both ends are ours where only the hub's own authority counts; what looks into TLS may be older.
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._pem is not None and self._named is None:
            made.minimum_version = ssl.TLSVersion.TLSv1_3
        if self._named is not None:
            try:
                made.load_verify_locations(cafile=self._named)
            except (OSError, ssl.SSLError) as error:
                why = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
                raise ManifestInvalid(
                    f"{VARIABLE}={self._named}: {why}; name a readable file with the authorities that this "
                    "institution trusts, in PEM"
                ) from error
        return made

    def _read_stamp(self) -> _Stamp:
        try:
            found = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_size) if found is not None else None
