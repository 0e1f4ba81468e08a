"""The dashboard beside the controllers: on a loopback address, or over TLS for those with a token."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

from fedsilo.dashboard.feed import Feed, Taken
from fedsilo.dashboard.server import INSTITUTION, JOBS, Access, Local, Views, serving
from fedsilo.errors import ManifestInvalid
from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.dashboard.access import TokenAccess
from fedsilo_operator.dashboard.source import InstitutionSource, Source
from fedsilo_operator.objects import SILO_AGENT
from fedsilo_operator.runtime.store import Store

CERTIFICATE_POLL_SECONDS = 60.0
"""Time between two checks for a newer certificate."""

log = logging.getLogger("fedsilo")


@asynccontextmanager
async def dashboard(cluster: Cluster, store: Store, port: int, tls: Path | None) -> AsyncIterator[int]:
    """Serve the dashboard of jobs until the end of the block; yields the port, which 0 lets the system choose.

    :param tls: directory with `tls.crt` and `tls.key`. With it, the network is served and a token asked for; without,
        only 127.0.0.1, which in a pod is reached by `kubectl port-forward`.
    :raises ManifestInvalid: when the certificate cannot be used.
    """
    source = Source(cluster, store)
    access: Access = Local() if tls is None else TokenAccess(cluster)
    async with _served(source.feed, access, port, tls, views=JOBS) as found:
        listing = asyncio.create_task(source.run())
        try:
            yield found
        finally:
            listing.cancel()
            await asyncio.gather(listing, return_exceptions=True)


@asynccontextmanager
async def institution_dashboard(
    cluster: Cluster, store: Store, port: int, tls: Path | None
) -> AsyncIterator[int]:
    """The same for an institution's own silo, where its silo controller runs alone: for who may list SiloAgents."""
    access: Access = Local() if tls is None else TokenAccess(cluster, kind=SILO_AGENT)
    feed = InstitutionSource(store).feed
    async with _served(feed, access, port, tls, views=INSTITUTION) as found:
        yield found


@asynccontextmanager
async def _served(
    feed: Feed[Taken], access: Access, port: int, tls: Path | None, *, views: Views[Taken]
) -> AsyncIterator[int]:
    if tls is None:
        async with serving(feed, access, "127.0.0.1", port, views=views) as found:
            yield found
        return
    context = _tls_context(tls)
    async with serving(feed, access, "0.0.0.0", port, context, views=views) as found:
        reloading = asyncio.create_task(_reload_certificate(context, tls))
        try:
            yield found
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)


def _tls_context(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_certificate(context, folder)
    return context


def _load_certificate(context: ssl.SSLContext, folder: Path) -> None:
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise ManifestInvalid(
            f"{folder}: tls.crt and tls.key cannot be used ({error}); give a Secret of type kubernetes.io/tls"
        ) from error


async def _reload_certificate(context: ssl.SSLContext, folder: Path) -> Never:
    """Use a newer certificate for new connections; the kubelet changes the files when the Secret changes."""
    known = (folder / "tls.crt").read_bytes()
    while True:
        await asyncio.sleep(CERTIFICATE_POLL_SECONDS)
        try:
            found = (folder / "tls.crt").read_bytes()
            if found != known:
                _load_certificate(context, folder)
                known = found
                log.info("dashboard: a newer certificate is in use")
        except (OSError, ManifestInvalid) as error:
            log.warning("dashboard: the certificate stays as it is: %s", error)
