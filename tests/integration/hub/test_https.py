"""HTTPS to the outside over real sockets: every way in which it fails is one sentence with the remedy."""

from __future__ import annotations

import datetime
import socket
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from fedsilo.hub import https
from fedsilo.hub.answers import KEEPALIVE
from fedsilo.hub.failures import Unreachable, clock_fault
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import make_authority
from tests.integration.hub.outside import HUB, ConnectProxy, Handler, Hub, saying, tls_of

LOGIN = "hospital:a pässword, 100% safe@home/#?"
ENCODED_LOGIN = "hospital:a%20p%C3%A4ssword%2C%20100%25%20safe%40home%2F%23%3F"


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


async def ask(url: str, ca: str | None, environment: dict[str, str]) -> str:
    async with HttpsClient(url, ca, environment) as client, client.request("GET", "/v1/x") as response:
        return await response.text()


async def refusal(url: str, ca: str | None, environment: dict[str, str]) -> str:
    with pytest.raises(Unreachable) as found:
        await ask(url, ca, environment)
    text = str(found.value)
    assert "\n" not in text
    assert "pässword" not in text and "hospital" not in text
    return text


async def stranger(hub: Hub, handler: Handler) -> str | None:
    async with (
        hub.serving(handler),
        HttpsClient(f"https://127.0.0.1:{hub.port}", hub.ca, {}) as client,
        client.request("GET", "/") as response,
    ):
        return client.foreign_answer(response)


def proxy_environment(proxy: ConnectProxy, login: str = "") -> dict[str, str]:
    return {"HTTPS_PROXY": f"http://{login}{'@' if login else ''}127.0.0.1:{proxy.port}"}


@pytest.mark.parametrize("login", [None, LOGIN])
async def test_a_proxy_opens_the_way_with_and_without_a_login(hub: Hub, login: str | None) -> None:
    proxy = ConnectProxy(login=login)
    async with hub.serving(saying(text="hello")), proxy.serving():
        assert await ask(hub.url, hub.ca, proxy_environment(proxy, ENCODED_LOGIN if login else "")) == "hello"
    assert proxy.asked == [f"{HUB}:{hub.port}"]


async def test_an_exempt_hub_is_asked_without_the_proxy(hub: Hub) -> None:
    proxy = ConnectProxy()
    async with hub.serving(saying(text="hello")), proxy.serving():
        environment = proxy_environment(proxy) | {"NO_PROXY": ".example"}
        assert HttpsClient(hub.url, hub.ca, environment).proxy is None
        assert await ask(f"https://127.0.0.1:{hub.port}", hub.ca, proxy_environment(proxy)) == "hello"
    assert proxy.asked == []


@pytest.mark.parametrize("login", ["", "hospital:wrong"])
async def test_a_proxy_that_demands_another_login(hub: Hub, login: str) -> None:
    proxy = ConnectProxy(login=LOGIN)
    async with hub.serving(saying()), proxy.serving():
        text = await refusal(hub.url, hub.ca, proxy_environment(proxy, login))
    assert text.startswith(f"the proxy 127.0.0.1:{proxy.port} (HTTPS_PROXY) ")
    wanted = "does not take the login of HTTPS_PROXY (407)" if login else "demands a login (407)"
    assert wanted in text
    assert hub.asked == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "permits no connection to hub.example:"),
        (502, "does not reach hub.example:"),
        (503, "does not reach hub.example:"),
        (400, "answers 400 No to CONNECT hub.example:"),
    ],
)
async def test_a_proxy_that_refuses_the_hub(hub: Hub, status: int, said: str) -> None:
    proxy = ConnectProxy(status=status)
    async with hub.serving(saying()), proxy.serving():
        assert said in await refusal(hub.url, hub.ca, proxy_environment(proxy))


async def test_a_proxy_that_is_not_there(hub: Hub) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        text = await refusal(f"https://{HUB}", hub.ca, {"HTTPS_PROXY": f"http://u:password@127.0.0.1:{port}"})
    assert text.startswith(
        f"the proxy 127.0.0.1:{port} (HTTPS_PROXY) refuses connections; look whether it runs"
    )


async def test_a_proxy_without_address(hub: Hub) -> None:
    text = await refusal(f"https://{HUB}", hub.ca, {"https_proxy": "proxy.invalid:3128"})
    assert text.startswith("the proxy proxy.invalid:3128 (https_proxy): no address for its name")
    assert "correct https_proxy" in text


async def test_a_proxy_that_says_nothing_is_not_waited_for(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "CONNECT_SECONDS", 0.1)
    proxy = ConnectProxy(silent=True)
    async with proxy.serving():
        text = await refusal(f"https://{HUB}", hub.ca, proxy_environment(proxy))
    assert text.startswith(
        f"{HUB}:443 through HTTPS_PROXY 127.0.0.1:{proxy.port}: no connection in time; look"
    )


async def test_a_hub_without_address(hub: Hub) -> None:
    text = await refusal("https://hub.invalid", hub.ca, {})
    assert text.startswith("hub.invalid:443: no address for its name")
    assert "HTTPS_PROXY" in text


async def test_a_hub_that_refuses_connections(hub: Hub) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        text = await refusal(f"https://{address}", hub.ca, {})
    assert text.startswith(f"{address} refuses connections; ask the hub whether its gateway runs there")


async def test_a_hub_that_hangs_up(hub: Hub) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with hub.serving(handler):
        text = await refusal(f"https://127.0.0.1:{hub.port}", hub.ca, {})
    assert f"127.0.0.1:{hub.port}: the connection broke" in text


async def test_an_answer_that_ends_before_its_end(hub: Hub) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return answer

    async with hub.serving(handler):
        text = await refusal(f"https://127.0.0.1:{hub.port}", hub.ca, {})
    assert "the connection broke" in text


async def test_a_certificate_of_another_authority(hub: Hub) -> None:
    async with hub.serving(saying()):
        other = make_authority().cert_pem.decode()
        text = await refusal(f"https://127.0.0.1:{hub.port}", other, {})
        assert "an authority that is not the invitation's" in text
        assert "SSL_CERT_FILE" in text
        text = await refusal(f"https://127.0.0.1:{hub.port}", None, {})
        assert "an authority that is none of the system's" in text


async def test_a_certificate_for_another_name(hub: Hub) -> None:
    tls = tls_of(hub.folder / "other", hub.authority, ["other.example"])
    async with hub.serving(saying(), tls):
        text = await refusal(f"https://127.0.0.1:{hub.port}", hub.ca, {})
        assert "the certificate is for another name" in text
        assert "use the URL that the hub gave" in text
        proxy = ConnectProxy()
        async with proxy.serving():
            assert "not valid for 'hub.example'" in await refusal(hub.url, hub.ca, proxy_environment(proxy))


@pytest.mark.parametrize(("days", "said"), [(-10, "has expired"), (2, "is not valid yet")])
async def test_a_certificate_of_another_time(hub: Hub, days: int, said: str) -> None:
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    hub.authority = make_authority(begin=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=30))
    tls = tls_of(hub.folder / "other", hub.authority, ["127.0.0.1"], begin, days=5)
    async with hub.serving(saying(), tls):
        text = await refusal(f"https://127.0.0.1:{hub.port}", hub.ca, {})
    assert f"the certificate {said}; here it is 20" in text
    assert "set this machine's clock if that is wrong" in text


async def test_a_port_that_speaks_no_tls(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "CONNECT_SECONDS", 0.1)
    proxy = ConnectProxy()
    async with proxy.serving():
        text = await refusal(f"https://127.0.0.1:{proxy.port}", hub.ca, {})
    assert f"127.0.0.1:{proxy.port}" in text


async def test_a_proxy_that_looks_into_tls_needs_the_institutions_authority(hub: Hub, tmp_path: Path) -> None:
    own = make_authority()
    proxy = ConnectProxy(inspects=tls_of(tmp_path / "proxy", own, [HUB]))
    trusted = tmp_path / "institution.pem"
    async with hub.serving(saying(text="hello")), proxy.serving(hub.authority):
        text = await refusal(hub.url, hub.ca, proxy_environment(proxy))
        assert (
            f"if the proxy 127.0.0.1:{proxy.port} looks into TLS, put the institution's own authority" in text
        )
        assert hub.asked == []
        trusted.write_bytes(own.cert_pem)
        assert (
            await ask(hub.url, hub.ca, proxy_environment(proxy) | {"SSL_CERT_FILE": str(trusted)}) == "hello"
        )


async def test_a_changed_file_of_authorities_counts_for_the_next_connection(hub: Hub, tmp_path: Path) -> None:
    trusted = tmp_path / "institution.pem"
    trusted.write_bytes(make_authority().cert_pem)
    environment = {"SSL_CERT_FILE": str(trusted)}
    async with (
        hub.serving(saying(text="hello")),
        HttpsClient(f"https://127.0.0.1:{hub.port}", None, environment) as client,
    ):
        with pytest.raises(Unreachable, match="is none of the system's;"):
            async with client.request("GET", "/"):
                pass
        trusted.write_bytes(hub.authority.cert_pem + b"\n")
        async with client.request("GET", "/") as response:
            assert response.status == 200
        trusted.write_bytes(b"torn")
        async with client.request("GET", "/") as response:
            assert response.status == 200, "what cannot be read changes nothing"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, "compare the URL with the hub's, and look whether this network demands a login"),
        (404, "compare the URL with the hub's"),
        (502, "ask the hub whether its gateway runs behind"),
        (413, "ask the hub to let larger bodies through"),
    ],
)
async def test_a_web_page_is_no_answer(hub: Hub, status: int, said: str) -> None:
    page = saying(
        status=status, text="<html>Log in</html>", content_type="text/html", headers={"Server": "gate"}
    )
    text = await stranger(hub, page)
    assert text is not None
    assert f"status {status} with a web page" in text
    assert said in text


async def test_an_answer_of_fedsilo_is_none_of_a_stranger(hub: Hub) -> None:
    for kind in ("application/msgpack", "application/problem+json"):
        assert await stranger(hub, saying(body=b"x", content_type=kind)) is None


@pytest.mark.parametrize("proxied", [False, True])
async def test_the_kernel_asks_whether_the_other_end_is_still_there(hub: Hub, proxied: bool) -> None:
    proxy = ConnectProxy()
    async with hub.serving(saying(text="hello")), proxy.serving():
        environment = proxy_environment(proxy) if proxied else {}
        url = hub.url if proxied else f"https://127.0.0.1:{hub.port}"
        async with HttpsClient(url, hub.ca, environment) as client:
            async with client.request("GET", "/") as response:
                await response.read()
            assert client._session is not None and client._session.connector is not None
            ((kept,),) = client._session.connector._conns.values()
            connection = kept[0].transport
            assert connection is not None
            found = {option: connection.get_extra_info("socket").getsockopt(*option) for option in KEEPALIVE}
    assert found == KEEPALIVE


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        (20, "this machine's clock is 20 min ahead of that of"),
        (-20, "this machine's clock is 20 min behind that of"),
    ],
)
def test_a_clock_that_is_off_is_seen_from_the_servers_date(minutes: int, said: str) -> None:
    headers = {"Date": formatdate(1_800_000_000, usegmt=True)}
    text = clock_fault(headers, "hub.example:443", 1_800_000_000 + 60 * minutes)
    assert text is not None
    assert text.startswith(f"{said} hub.example:443, and 30 s are permitted; set it by NTP")
    assert clock_fault(headers, "hub.example:443", 1_800_000_029) is None
    assert clock_fault({}, "hub.example:443", 0) is None
    assert clock_fault({"Date": "today"}, "hub.example:443", 0) is None
