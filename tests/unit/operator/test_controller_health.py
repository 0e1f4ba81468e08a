"""The probes say what the kubelet must know."""

from __future__ import annotations

import aiohttp

from fedsilo_operator.runtime.health import health


async def test_ready_is_who_has_all_caches() -> None:
    missing = ["pods", "silos"]
    async with health(lambda: missing, port=0) as port, aiohttp.ClientSession() as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "not listed yet: pods, silos\n")
        missing.clear()
        assert await ask("/readyz") == (200, "ok\n")
        assert (await ask("/metrics"))[0] == 404
