"""What a process answers to its monitors: plain HTTP, inside the cluster, read-only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from aiohttp import web

from fedsilo.errors import ManifestInvalid
from fedsilo.http.listening import EVERY_ADDRESS, listening_socket, refusal_reason
from fedsilo.http.log import SERVER_LOG
from fedsilo.metrics import CONTENT_TYPE, Exposition


@asynccontextmanager
async def probes(unready: Callable[[], str], exposition: Exposition, port: int) -> AsyncIterator[int]:
    """Answer `/healthz`, `/readyz` and `/metrics` on all addresses; yields the port, which 0 lets the system choose.

    A process that answers is alive.

    :param unready: what is still missing, in words; empty when nothing is.
    :raises ManifestInvalid: when the port cannot be listened on, for example because another process does.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = unready()
        return web.Response(status=503, text=f"{missing}\n") if missing else web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, logger=SERVER_LOG, shutdown_timeout=1)
    await runner.setup()
    try:
        try:
            await web.SockSite(runner, listening_socket(EVERY_ADDRESS, port)).start()
        except (OSError, OverflowError) as error:
            raise ManifestInvalid(
                f"port {port}: /healthz and /metrics cannot be served ({refusal_reason(error)}); name another"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def probing(exposition: Exposition, port: int | None) -> AbstractAsyncContextManager[object]:
    """Serve `probes` where a port was asked for, by a process that is ready as soon as it serves."""
    return nullcontext() if port is None else probes(lambda: "", exposition, port)
