"""How everything in an institution opens HTTPS to the outside: one server, through the institution's proxy or directly.

Guard, connector and commands differ in what they ask; authorities, proxies, limits and what a failure means for a
person are the same for all of them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from fedsilo.hub.answers import connector
from fedsilo.hub.authorities import TlsContextCache
from fedsilo.hub.failures import Unreachable, clock_fault, explain_failure, foreign_answer
from fedsilo.hub.proxy import proxy_for

CONNECT_SECONDS = 10
"""For the name, TCP and TLS each; all of them together, a proxy's answer included, may take three times as long."""

SILENCE_SECONDS = 90
"""Most seconds without a byte: more than any request is held. The total has no limit, since bodies are large."""

READ_BYTES = 64 << 10
"""Amount of an answer that is kept until it is asked for; large ones have buffers of their own."""


class HttpsClient:
    """Requests to one server outside.

    :param url: base URL of the server.
    :param authority: PEM of the authority of its certificate; the system's authorities when None.
    :param environment: where proxy and further authorities are named.
    :raises ManifestInvalid: when the URL, the authority, or a variable of the environment cannot be used.
    """

    def __init__(self, url: str, authority: str | None, environment: Mapping[str, str] = os.environ) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self.host, self.port = parts.hostname or "", parts.port or 443
        self.authorities = TlsContextCache(authority, url, environment)
        self.proxy = proxy_for(self.host, self.port, environment)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> HttpsClient:
        # Nothing that an answer says is kept or unpacked: a few bytes may unpack to very many.
        self._session = aiohttp.ClientSession(
            connector=connector(),
            timeout=aiohttp.ClientTimeout(
                total=None,
                connect=3 * CONNECT_SECONDS,
                sock_connect=CONNECT_SECONDS,
                sock_read=SILENCE_SECONDS,
            ),
            read_bufsize=READ_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | AsyncIterator[memoryview] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request, whose answer may have any status; redirects are not followed.

        :param path: with the query, below the server's URL.
        :raises Unreachable: when there is no answer, or it ends before its end, with the cause and the remedy.
        """
        assert self._session is not None
        login = self.proxy.authorization if self.proxy else None
        try:
            async with self._session.request(
                method,
                f"{self.url}{path}",
                headers=headers,
                data=data,
                allow_redirects=False,
                ssl=self.authorities.context(),
                proxy=self.proxy.url if self.proxy else None,
                proxy_headers={"Proxy-Authorization": login} if login else None,
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(self.explain(error)) from error

    def explain(self, error: BaseException) -> str:
        """Why a request failed and what to do, as one sentence."""
        return explain_failure(error, self.address, self.proxy, private=self.authorities.private)

    def foreign_answer(self, response: aiohttp.ClientResponse) -> str | None:
        """Who has answered with a web page instead of the server, as one sentence; None where there is no page."""
        return foreign_answer(response.status, response.headers, self.address, self.proxy)

    def clock_fault(self, response: aiohttp.ClientResponse, now: float) -> str | None:
        """That this machine's clock, which says `now`, is wrong by the server's, as one sentence; None if it is not."""
        return clock_fault(response.headers, self.address, now)
