"""Requests to a Kubernetes API server as raw JSON, over the official client.

`kubernetes.aio` brings what is hard to get right: kubeconfigs, certificates, and tokens that rotate. Its models, its
watch and its requests are left alone: a request of its own copies the body and waits for two threads, which look for a
proxy and a .netrc.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from fedsilo.errors import ManifestInvalid
from fedsilo.process import version
from fedsilo_operator.cluster.interface import (
    CallRefused,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    FieldCause,
    FieldConflict,
    NotFound,
    ObjectInvalid,
    VersionExpired,
)
from fedsilo_operator.cluster.requests import RequestTotals

CALL_TIMEOUT = aiohttp.ClientTimeout(total=30, connect=10)
"""Time limits of one call; the API server itself ends a request after 60 seconds."""

WATCH_SILENCE_SECONDS = 150.0
"""Time without a line after which a watch counts as broken: bookmarks come about once a minute."""

MAX_LINE_BYTES = 2**21
"""Buffer of a watch's line: the API server keeps objects of up to 1.5 MB."""

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"

_REFUSED_WITH_500 = ("failed to create typed patch object", "Internal error occurred: failed calling webhook")
"""Refusals that come with status 500: an apply of a field that the schema lacks; a webhook that does not answer, which
concerns one kind or one namespace, and may last."""

Query = Sequence[tuple[str, str]]

log = logging.getLogger("fedsilo")


class Connection:
    """One API server, as the kubeconfig or the pod's service account names it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.requests = RequestTotals()
        settings = self._settings = client.configuration
        self._headers = {"Accept": JSON, "User-Agent": version().replace(" ", "-operator/")}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.connection_pool_maxsize, ssl=client.rest_client.ssl_context
            ),
            proxy=settings.proxy or _proxy_for(settings.host),
            read_bufsize=MAX_LINE_BYTES,
        )

    async def call(
        self, method: str, path: str, query: Query = (), body: Any = None, content: str = JSON
    ) -> Any:
        """Send one request, and decode the JSON of its answer.

        :raises ClusterError: for every answer but 2xx, and without an answer.
        """
        async with self._request(method, path, query, body, content, CALL_TIMEOUT) as response:
            return json.loads(await response.read())

    async def lines(self, path: str, query: Query, seconds: float) -> AsyncGenerator[Any, None]:
        """The JSON values of a streamed answer, one per line.

        :param seconds: how long the server was asked to stream.
        """
        timeout = aiohttp.ClientTimeout(total=seconds + 30, connect=10, sock_read=WATCH_SILENCE_SECONDS)
        async with self._request("GET", path, query, None, JSON, timeout) as response:
            async for line in response.content:
                yield json.loads(line)

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Query,
        body: Any,
        content: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        what = f"{method} {self._settings.host}{path}"
        response: aiohttp.ClientResponse | None = None
        began = time.monotonic()
        try:
            response = await self._session.request(
                method,
                f"{self._settings.host}{path}",
                params=query,
                headers={**self._headers, "Content-Type": content, **await self._authorization()},
                data=None if body is None else json.dumps(body).encode(),
                timeout=timeout,
                server_hostname=self._settings.tls_server_name,
                proxy_headers=self._settings.proxy_headers,
            )
            self.requests.add(method, response.status, time.monotonic() - began)
            log.debug("%s %s: %d", method, path, response.status)
            if response.status >= 300:
                raise error_of(what, response.status, await response.read())
            yield response
        except (aiohttp.ClientError, config.ConfigException, OSError, ValueError) as error:
            # ValueError: a truncated answer is no JSON, and a line may be longer than the buffer.
            if response is None:
                self.requests.add(method, None, time.monotonic() - began)
            raise ClusterUnavailable(f"{what}: {str(error) or type(error).__name__}") from error
        finally:
            if response is not None:
                _release(response)

    async def _authorization(self) -> dict[str, str]:
        """The token as it is now: that of a pod's account rotates."""
        found = (await self._settings.auth_settings()).get("BearerToken")
        return {} if found is None or not found["value"] else {"Authorization": found["value"]}

    async def close(self) -> None:
        """Close all connections to the API server."""
        await self._session.close()
        await self._client.close()  # type: ignore[no-untyped-call]
        await asyncio.sleep(0)  # TLS transports finish closing in the loop's next turn


def _proxy_for(host: str) -> str | None:
    """The proxy that the environment names for this address; None for the direct way."""
    address = urlsplit(host)
    if address.hostname is None or proxy_bypass(address.hostname):
        return None
    return getproxies().get(address.scheme)


def _release(response: aiohttp.ClientResponse) -> None:
    """Return the connection to the pool, or abort it where more would come: an orderly close could take for ever."""
    connection = response.connection
    if connection is not None and connection.transport is not None and not response.content.at_eof():
        connection.transport.abort()
    response.release()


async def connect() -> Connection:
    """The API server that `KUBECONFIG` names, else the one of the pod that this process runs in.

    :raises ManifestInvalid: when neither is there.
    """
    configuration = Configuration()
    path = os.environ.get("KUBECONFIG")
    try:
        if path:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                path, client_configuration=configuration, persist_config=False
            )
        else:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise ManifestInvalid(
            f"{path or 'no KUBECONFIG'}: {error} "
            "Set KUBECONFIG to a kubeconfig, or run in a pod with a service account."
        ) from error
    return Connection(ApiClient(configuration))


def error_of(what: str, status: int, body: bytes) -> ClusterError:
    """The error class of an answer, with the API server's own message where it has one.

    :param what: the request, for an answer of something else, such as a proxy.
    """
    try:
        answer = json.loads(body)
        message = answer["message"]
    except (ValueError, KeyError, TypeError):
        answer = {}
        message = f"{what}: HTTP {status}: {body[:200].decode(errors='replace').strip()}"
    details = answer.get("details") or {}
    found = _class_of(status, message, details)
    if found is CallRefused and status == 422 and "denied the request" not in message:
        causes = [cause for cause in details.get("causes") or () if cause.get("field") is not None]
        if causes:  # an admission policy says of no field that it denies it
            return ObjectInvalid(
                message,
                tuple(FieldCause(cause["field"], str(cause.get("message") or "")) for cause in causes),
            )
    return found(message)


def _class_of(status: int, message: str, details: Mapping[str, Any]) -> type[ClusterError]:
    causes = details.get("causes") or ()
    if status == 409 and any(cause.get("reason") == "FieldManagerConflict" for cause in causes):
        return FieldConflict
    known = {404: NotFound, 409: Conflict, 410: VersionExpired}
    if status in known:
        return known[status]
    if status == 422 and any(cause.get("field") == "metadata.uid" for cause in causes):
        return Conflict  # server-side apply to an object with another identity
    if message.startswith(_REFUSED_WITH_500):
        return CallRefused
    # 401 passes when the token is renewed; too many requests and time-outs pass when the load does.
    if status >= 500 or status in (401, 408, 429):
        return ClusterUnavailable
    return CallRefused
