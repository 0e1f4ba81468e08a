"""Through the proxies that institutions run: with the right login to the permitted port, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import quote

import pytest

from fedsilo.hub.failures import Unreachable
from fedsilo.hub.https import HttpsClient
from tests.integration.hub.debian_proxies import (
    SQUID_LOGINS,
    SQUID_PASSWORD,
    TINYPROXY_PASSWORD,
    USER,
    find_program,
    squid,
    tinyproxy,
)
from tests.integration.hub.outside import Hub, saying, tls_of

PASSWORDS: dict[object, str] = {squid: SQUID_PASSWORD, tinyproxy: TINYPROXY_PASSWORD}

NAME = "127.1"
"""A name for 127.0.0.1 that every resolver knows, and that is not taken for an address: the proxy looks it up."""

Start = Callable[..., AbstractAsyncContextManager[int]]

PROXIES = [
    pytest.param(
        squid,
        marks=pytest.mark.skipif(not find_program("squid") or not SQUID_LOGINS.exists(), reason="no squid"),
    ),
    pytest.param(tinyproxy, marks=pytest.mark.skipif(not find_program("tinyproxy"), reason="no tinyproxy")),
]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


async def ask(hub: Hub, port: int, login: str, proxy: int) -> str:
    environment = {"HTTPS_PROXY": f"http://{login}{'@' if login else ''}127.0.0.1:{proxy}"}
    async with (
        HttpsClient(f"https://{NAME}:{port}", hub.ca, environment) as client,
        client.request("GET", "/v1/x") as response,
    ):
        return await response.text()


@pytest.mark.parametrize("start", PROXIES)
async def test_the_way_is_open_to_the_permitted_port_alone(hub: Hub, tmp_path: Path, start: Start) -> None:
    tls = tls_of(tmp_path / "named", hub.authority, [NAME])
    async with (
        hub.serving(saying(text="hello"), tls),
        start(login=False, permitted_port=hub.port) as proxy,
    ):
        assert await ask(hub, hub.port, "", proxy) == "hello"
        with pytest.raises(Unreachable, match=rf"permits no connection to {NAME}:{hub.port - 1} \(403\)"):
            await ask(hub, hub.port - 1, "", proxy)


@pytest.mark.parametrize("start", PROXIES)
async def test_a_login_is_demanded(hub: Hub, tmp_path: Path, start: Start) -> None:
    tls = tls_of(tmp_path / "named", hub.authority, [NAME])
    async with (
        hub.serving(saying(text="hello"), tls),
        start(login=True, permitted_port=hub.port) as proxy,
    ):
        password = quote(PASSWORDS[start], safe="")
        assert await ask(hub, hub.port, f"{USER}:{password}", proxy) == "hello"
        with pytest.raises(Unreachable, match=r"demands a login \(407\)"):
            await ask(hub, hub.port, "", proxy)
        with pytest.raises(Unreachable, match=r"does not take the login of HTTPS_PROXY \(40[17]\)"):
            await ask(hub, hub.port, f"{USER}:wrong", proxy)
        assert hub.asked == ["/v1/x"]


@pytest.mark.parametrize("start", PROXIES)
async def test_a_hub_that_the_proxy_does_not_reach(hub: Hub, start: Start) -> None:
    async with hub.serving(saying()):
        gone = hub.port
    async with start(login=False, permitted_port=gone) as proxy:
        with pytest.raises(Unreachable, match=rf"does not reach {NAME}:{gone} \(50"):
            await ask(hub, gone, "", proxy)
