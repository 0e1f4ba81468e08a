"""The doctor on the way to the hub: every failing step is named once, and what comes after it is not guessed at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import Problem
from fedsilo.http.refusals import problem_response
from fedsilo.hub.doctor.finding import Finding, FindingState, has_failed, report
from fedsilo.hub.doctor.way import STEPS, examine_way
from fedsilo.wire import SigningKey, VerifyKey, make_authority, verify_request
from tests.integration.hub.outside import ConnectProxy, Handler, Hub, saying, tls_of

KEY = SigningKey.generate()
HUB_KEY = SigningKey.generate().verify_key.to_text()


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def refusing(code: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return problem_response(Problem(code, "as a test says"))

    return handler


async def examine_hub(
    url: str,
    ca: str,
    environment: Mapping[str, str],
    now: Callable[[], float] = time.time,
    keys: Sequence[SigningKey] = (KEY,),
) -> list[Finding]:
    address = HubAddress(url=url, ca_certificate=ca, key=HUB_KEY)
    found = await examine_way(address, "silo-north/north", keys, environment, now)
    assert [one.check for one in found if one.check != "settings"] == list(STEPS)
    return found


def only_failure(found: list[Finding]) -> Finding:
    """The one that failed; all before it hold, and what hides behind it is skipped."""
    (one,) = [each for each in found if each.state is FindingState.FAILED]
    assert has_failed(found)
    at = found.index(one)
    assert all(each.state is not FindingState.FAILED for each in found[:at])
    return one


def proxy_environment(proxy: ConnectProxy) -> dict[str, str]:
    return {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}


async def test_a_hub_without_address(hub: Hub) -> None:
    found = await examine_hub("https://hub.invalid", hub.ca, {})
    first = found[0]
    assert (first.check, first.state) == ("DNS", FindingState.FAILED)
    assert "set HTTPS_PROXY" in first.text


async def test_a_proxy_without_address(hub: Hub) -> None:
    first = (await examine_hub("https://hub.invalid", hub.ca, {"HTTPS_PROXY": "proxy.invalid:3128"}))[0]
    assert (first.check, first.state) == ("DNS", FindingState.FAILED)
    assert "correct HTTPS_PROXY" in first.text


@pytest.mark.parametrize(
    ("proxy", "said"), [(ConnectProxy(login="a:b"), "407"), (ConnectProxy(status=403), "403")]
)
async def test_a_proxy_that_refuses(hub: Hub, proxy: ConnectProxy, said: str) -> None:
    async with hub.serving(saying()), proxy.serving():
        found = only_failure(await examine_hub(hub.url, hub.ca, proxy_environment(proxy)))
    assert found.check == "proxy"
    assert said in found.text


async def test_a_hub_that_refuses_connections(hub: Hub) -> None:
    async with hub.serving(saying()):
        gone = f"https://127.0.0.1:{hub.port}"
    found = only_failure(await examine_hub(gone, hub.ca, {}))
    assert found.check == "connection"
    assert "refuses connections" in found.text


async def test_a_certificate_that_does_not_fit(hub: Hub, tmp_path: Path) -> None:
    other = tls_of(tmp_path / "other", hub.authority, ["other.example"])
    async with hub.serving(saying(), other):
        found = only_failure(await examine_hub(f"https://127.0.0.1:{hub.port}", hub.ca, {}))
        assert (found.check, "for another name" in found.text) == ("TLS", True)
        stranger = make_authority().cert_pem.decode()
        found = only_failure(await examine_hub(f"https://127.0.0.1:{hub.port}", stranger, {}))
        assert (found.check, "SSL_CERT_FILE" in found.text) == ("TLS", True)


async def test_a_web_page(hub: Hub) -> None:
    async with hub.serving(saying(text="<html>", content_type="text/html")):
        found = only_failure(await examine_hub(f"https://127.0.0.1:{hub.port}", hub.ca, {}))
    assert (found.check, "with a web page" in found.text) == ("answer", True)


async def test_a_hub_that_hangs_up_in_the_middle(hub: Hub) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with hub.serving(handler):
        found = only_failure(await examine_hub(f"https://127.0.0.1:{hub.port}", hub.ca, {}))
    assert (found.check, "the connection broke" in found.text) == ("answer", True)


@pytest.mark.parametrize(("minutes", "side"), [(20, "ahead of"), (-20, "behind")])
async def test_a_clock_that_is_off(hub: Hub, minutes: int, side: str) -> None:
    async with hub.serving(refusing("proof-expired")):
        url = f"https://127.0.0.1:{hub.port}"
        found = await examine_hub(url, hub.ca, {}, lambda: time.time() + 60 * minutes)
    clock = next(one for one in found if one.check == "clock")
    assert clock.state is FindingState.FAILED
    assert f"20 min {side}" in clock.text


@pytest.mark.parametrize(
    ("code", "check", "said"),
    [
        (
            "not-accepted",
            "enrolment",
            "{fingerprint} is not accepted yet; tell the consortium's office",
        ),
        ("unknown-sender", "enrolment", "ask the consortium's office for a new invitation"),
        ("silo-left", "enrolment", "ask the consortium's office for a new invitation"),
        ("signature-invalid", "proof", "if another machine has joined as this silo, use that one"),
        ("wrong-job", "proof", "as a test says"),
    ],
)
async def test_a_hub_that_does_not_take_the_silos_word(hub: Hub, code: str, check: str, said: str) -> None:
    async with hub.serving(refusing(code)):
        found = only_failure(await examine_hub(f"https://127.0.0.1:{hub.port}", hub.ca, {}))
    assert found.check == check
    assert said.format(fingerprint=KEY.verify_key.fingerprint) in found.text


@pytest.mark.parametrize("known", [True, False])
async def test_a_key_that_has_yet_to_take_over_is_no_fault(hub: Hub, known: bool) -> None:
    """While the hub has not taken a rotation, it knows the key before; a key that is nowhere here is named."""
    present, other = SigningKey.generate(), SigningKey.generate()

    async def handler(request: web.Request) -> web.StreamResponse:
        proof = request.headers.get("Authorization", "")
        try:
            verify_request(
                *(proof, {"silo-north/north": (present if known else other).verify_key}),
                job=VerifyKey.from_text(HUB_KEY).key_id,
                method="GET",
                path=request.raw_path,
                body=None,
                now=time.time(),
            )
        except Problem as problem:
            return problem_response(problem)
        return web.Response(status=204)

    async with hub.serving(handler):
        found = await examine_hub(f"https://127.0.0.1:{hub.port}", hub.ca, {}, keys=[KEY, present])
    assert has_failed(found) is not known
    proof = next(one for one in found if one.check == "proof")
    assert (present if known else KEY).verify_key.fingerprint in proof.text


async def test_a_variable_that_cannot_be_used(hub: Hub, tmp_path: Path) -> None:
    for environment in ({"HTTPS_PROXY": "socks5://a"}, {"SSL_CERT_FILE": str(tmp_path / "none.pem")}):
        found = await examine_hub("https://hub.invalid", hub.ca, environment)
        assert found[0].state is FindingState.FAILED
        assert found[0].text.startswith(next(iter(environment)))
        assert all(one.state is FindingState.SKIPPED for one in found[1:])


async def test_every_finding_is_one_line_whatever_was_answered(hub: Hub) -> None:
    page = saying(text="<html>", content_type="text/html", headers={"Server": "a\tb"})
    async with hub.serving(page):
        found = await examine_hub(f"https://127.0.0.1:{hub.port}", hub.ca, {})
    text = report(found)
    assert len(text.splitlines()) == len(found) + 1
    assert "\t" not in text
    assert text.splitlines()[-1] == "8 checks: 4 ok, 1 failed, 3 skipped"
