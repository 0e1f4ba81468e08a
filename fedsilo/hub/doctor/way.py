"""The way from an institution to its hub, step by step: what does not hold hides what comes after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import ManifestInvalid, Problem
from fedsilo.hub.client import HubClient
from fedsilo.hub.doctor.finding import Finding, FindingState, failed_finding, holds, skipped_finding
from fedsilo.hub.failures import RequestStage, Unreachable, stage_of
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import SigningKey, VerifyKey

DNS, PROXY, CONNECTION, TLS, ANSWER, CLOCK, PROOF, ENROLMENT = (
    *("DNS", "proxy", "connection", "TLS", "answer", "clock", "proof", "enrolment"),
)
STEPS = (DNS, PROXY, CONNECTION, TLS, ANSWER, CLOCK, PROOF, ENROLMENT)

STATION_OF_STAGE = {
    RequestStage.PROXY: PROXY,
    RequestStage.CONNECTION: CONNECTION,
    RequestStage.TLS: TLS,
    RequestStage.ANSWER: ANSWER,
}


async def examine_way(
    address: HubAddress,
    silo: str,
    keys: Sequence[SigningKey],
    environment: Mapping[str, str],
    now: Callable[[], float] = time.time,
) -> list[Finding]:
    """Each of `STEPS` in its order.

    :param silo: `namespace/name`.
    :param keys: the silo's, the newest first: while one takes over from another, the hub takes one of them.
    :param now: seconds since 1970.
    """
    try:
        https = HttpsClient(address.url, address.ca_certificate, environment)
    except ManifestInvalid as error:
        # Proxy and authorities come from the environment: the message begins with the variable's name.
        return [failed_finding("settings", str(error)), *_skipped_findings(STEPS, "the settings")]
    async with https:
        found = [await _dns(https), *await _reach(https, now)]
        answered = any(one.check == ANSWER and one.state is FindingState.HOLDS for one in found)
        if answered and not keys:
            found.append(
                failed_finding(
                    PROOF, "there is no signing key; look into the log of what should have made it"
                )
            )
        elif answered:
            found += await _key_findings(https, address, silo, keys, now)
    reached = {one.check for one in found}
    return found + _skipped_findings([step for step in STEPS if step not in reached], found[-1].check)


async def _dns(https: HttpsClient) -> Finding:
    name = urlsplit(https.proxy.url).hostname if https.proxy else https.host
    whose = f"the proxy {name}" if https.proxy else name
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None)
    except OSError as error:
        what = f"correct {https.proxy.variable}" if https.proxy else "correct the name"
        hint = "" if https.proxy else "; if only a proxy knows it, set HTTPS_PROXY"
        return failed_finding(
            DNS, f"{whose} has no address ({error.strerror}); {what} or this machine's name server{hint}"
        )
    addresses = sorted({str(entry[4][0]) for entry in found})
    looks = f"; the proxy looks up {https.host}" if https.proxy else ""
    return holds(DNS, f"{whose} has the address {', '.join(addresses)}{looks}")


async def _reach(https: HttpsClient, now: Callable[[], float]) -> list[Finding]:
    """From the proxy to the clock, as far as it goes; the way ends with the first that fails."""
    passed = [
        holds(PROXY, f"{https.proxy.variable} {https.proxy.address}" if https.proxy else "none is used"),
        holds(CONNECTION, f"{https.address} is reached"),
        holds(TLS, f"the certificate is by {https.authorities.whose}"),
    ]
    try:
        async with https.request("GET", "/") as response:
            foreign, fault = https.foreign_answer(response), https.clock_fault(response, now())
    except Unreachable as error:
        at = STATION_OF_STAGE[stage_of(error.__cause__, https.proxy)]
        before = [one for one in passed if STEPS.index(one.check) < STEPS.index(at)]
        return [*before, failed_finding(at, str(error))]
    if foreign is not None:
        return [*passed, failed_finding(ANSWER, foreign)]
    clock = failed_finding(CLOCK, fault) if fault else holds(CLOCK, "agrees with the hub's")
    return [*passed, holds(ANSWER, "it speaks to silos"), clock]


async def _key_findings(
    https: HttpsClient,
    address: HubAddress,
    silo: str,
    keys: Sequence[SigningKey],
    now: Callable[[], float],
) -> list[Finding]:
    """What the hub says of the first key that it knows, or of the newest."""
    tried = []
    for key in keys:
        hub = HubClient(https, VerifyKey.from_text(address.key), silo, key, now)
        known, found = await _membership(hub, silo, key.verify_key)
        if known:
            return found
        tried.append(found)
    return tried[0]


async def _membership(hub: HubClient, silo: str, key: VerifyKey) -> tuple[bool, list[Finding]]:
    """Whether the hub knows no other key of this silo, and whether it takes the silo's word."""
    proven = holds(PROOF, f"the hub takes requests signed with the key {key.fingerprint}")
    try:
        await hub.agents("", 0)
    except Unreachable as error:
        return True, [failed_finding(PROOF, str(error))]
    except Problem as problem:
        if problem.code == "not-accepted":
            told = "tell the consortium's office the fingerprint by telephone"
            return True, [
                proven,
                failed_finding(ENROLMENT, f"the key {key.fingerprint} is not accepted yet; {told}"),
            ]
        if problem.code in ("unknown-sender", "silo-left"):
            # The hub's own remedy stands behind the semicolon.
            found = problem.detail.partition(";")[0]
            asks = "ask the consortium's office for a new invitation"
            return True, [
                skipped_finding(PROOF, "the hub admits no key"),
                failed_finding(ENROLMENT, f"{found}; {asks}"),
            ]
        if problem.code == "signature-invalid":
            return False, [
                failed_finding(
                    PROOF,
                    f"the hub knows another key of {silo} than {key.fingerprint}; if another machine has joined "
                    "as this silo, use that one, else tell the consortium's office",
                )
            ]
        return True, [failed_finding(PROOF, str(problem))]
    return True, [proven, holds(ENROLMENT, f"{silo} is accepted")]


def _skipped_findings(steps: list[str] | tuple[str, ...], behind: str) -> list[Finding]:
    return [skipped_finding(step, f"after {behind}") for step in steps]
