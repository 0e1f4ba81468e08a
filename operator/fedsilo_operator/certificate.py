"""The certificate of a service, from a folder that the kubelet renews when the Secret changes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Never

from fedsilo.errors import ManifestInvalid

CERTIFICATE_POLL_SECONDS = 60.0
"""Time between two checks for a newer certificate."""

log = logging.getLogger("fedsilo")


def served_tls(folder: Path) -> ssl.SSLContext:
    """Settings of a server with the certificate `tls.crt` and the key `tls.key`.

    :raises ManifestInvalid: when these cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, folder)
    return context


async def renew_certificate(context: ssl.SSLContext, folder: Path) -> Never:
    """Use a newer certificate for new connections, as soon as its files are there and fit each other."""
    known = (folder / "tls.crt").read_bytes()
    while True:
        await asyncio.sleep(CERTIFICATE_POLL_SECONDS)
        try:
            found = (folder / "tls.crt").read_bytes()
            if found != known:
                # To load a certificate whose key is not there yet would take the key away from the one in use.
                served_tls(folder)
                _load(context, folder)
                known = found
                log.info("%s: a newer certificate is in use", folder)
        except (OSError, ManifestInvalid) as error:
            log.warning("%s: the certificate stays as it is: %s", folder, error)


def _load(context: ssl.SSLContext, folder: Path) -> None:
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise ManifestInvalid(
            f"{folder}: tls.crt and tls.key cannot be used ({error}); give a Secret of type kubernetes.io/tls"
        ) from error
