"""The probes of the operator's pod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def health(unready: Callable[[], Sequence[str]], port: int) -> AsyncIterator[int]:
    """Answer `/healthz` and `/readyz` on all addresses; the port, for who asked for any (0).

    Alive is who answers. Ready is who has all caches, leading or not: a standby takes over at once.

    :param unready: what is still missing.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = unready()
        if missing:
            return web.Response(status=503, text=f"not listed yet: {', '.join(missing)}\n")
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
