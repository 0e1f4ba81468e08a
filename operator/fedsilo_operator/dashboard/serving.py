"""The dashboard beside the controllers: on a loopback address, or over TLS for those with a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fedsilo.dashboard.server import INSTITUTION, JOBS, Access, LocalAccess, serving
from fedsilo.http.listening import EVERY_ADDRESS
from fedsilo_operator.certificate import renew_certificate, served_tls
from fedsilo_operator.cluster.interface import Cluster
from fedsilo_operator.dashboard.access import TokenAccess
from fedsilo_operator.dashboard.source import InstitutionSource, Source
from fedsilo_operator.runtime.store import Store


@asynccontextmanager
async def dashboard(cluster: Cluster, store: Store, port: int, tls: Path | None) -> AsyncIterator[int]:
    """Serve the dashboard of jobs until the end of the block; yields the port, which 0 lets the system choose.

    :param tls: directory with `tls.crt` and `tls.key`. With it, the network is served and a token asked for; without,
        only 127.0.0.1, which in a pod is reached by `kubectl port-forward`.
    :raises ManifestInvalid: when the certificate cannot be used.
    """
    source = Source(cluster, store)
    context = None if tls is None else served_tls(tls)
    access: Access = LocalAccess() if tls is None else TokenAccess(cluster)
    host = "127.0.0.1" if tls is None else EVERY_ADDRESS
    async with serving(source.feed, access, host, port, context, views=JOBS) as found:
        tasks = [asyncio.create_task(source.run())]
        if context is not None and tls is not None:
            tasks.append(asyncio.create_task(renew_certificate(context, tls)))
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def institution_dashboard(store: Store, port: int) -> AsyncIterator[int]:
    """The page of an institution's own silo, for whoever may forward a port to its silo controller's pod."""
    feed = InstitutionSource(store).feed
    async with serving(feed, LocalAccess(), "127.0.0.1", port, views=INSTITUTION) as found:
        yield found
