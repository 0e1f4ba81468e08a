"""Institutions whose links are cut for longer than a round's deadline: it closes without them, and they come back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import condition
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.silo.remote import NOT_SEEN
from tests.cluster.federation import ClusterFederation
from tests.cluster.institutions import edges
from tests.cluster.institutions.consortium import EAST, NORTH, SILOS, SOUTH, Consortium
from tests.cluster.institutions.gaps import run_with_gaps
from tests.cluster.namespace import wait_until

pytestmark = pytest.mark.timeout(600)

AWAY_SILOS = (EAST, SOUTH)
ROUNDS = 4
"""One in which all take part, up to two that a cut costs on a slow machine, and one in which all are back."""
DEADLINE_SECONDS = 45
WAIT_SECONDS = 120.0

PARTICIPATION = {"minSilos": 1, "roundDeadline": f"{DEADLINE_SECONDS}s"}
LOCAL_EPOCHS = 150
"""Seconds of training, so that the links are cut while all train."""


def test_links_that_are_cut_for_longer_than_the_deadline_cost_a_round_and_nothing_else(
    consortium: Consortium, tmp_path: Path
) -> None:
    """Each side says of the other that it is not there; the bytes are those of a run here with the same gaps.

    The hub misses a silo after five minutes; instead of waiting for them, the test puts back when it was heard of.
    """
    job = consortium.job("cut", PARTICIPATION, rounds=ROUNDS, localEpochs=LOCAL_EPOCHS)
    with consortium.hub.serve_gateway(edges.balancer, tmp_path, tls=True), ThreadPoolExecutor(1) as here:
        consortium.hub.kubectl.apply(job.job)
        job.round_reached(1)
        before = pods(consortium) | processes(consortium)
        with consortium.cut():
            begin = time.monotonic()
            wait_until(
                lambda: awaited_silos(job) == {*AWAY_SILOS},
                "a round that waits for those alone",
                WAIT_SECONDS,
            )
            status = job.status()
            last, missed = last_rounds(status), status["round"] + 1
            # On a slow machine any of them may have begun after the deadline of round 1.
            gaps = {name: range(last[name] + 1, missed + (name in AWAY_SILOS)) for name in SILOS}
            expected = here.submit(run_with_gaps, job.objects, tmp_path, gaps, ROUNDS)
            institutions_say(consortium, reached=False)
            put_back(consortium)
            hub_says(consortium, job, connected=False)
            job.round_reached(missed)
            time.sleep(max(0.0, begin + DEADLINE_SECONDS - time.monotonic()))
            assert last_rounds(job.status()) == {**last, NORTH: missed}
            institutions_say(consortium, reached=False)
            assert pods(consortium) | processes(consortium) == before
        ended = job.wait_complete(timeout=WAIT_SECONDS)
        institutions_say(consortium, reached=True)
        hub_says(consortium, job, connected=True)
    assert last_rounds(ended) == dict.fromkeys(SILOS, ROUNDS)
    assert ended["model"]["sha256"] == expected.result()["model"]["sha256"]
    assert pods(consortium) <= before


def awaited_silos(job: ClusterFederation) -> set[str]:
    """Silos that the aggregator waits for."""
    return {silo["name"] for silo in job.status()["silos"] if silo.get("state") == "Awaited"}


def last_rounds(status: Mapping[str, Any]) -> dict[str, int]:
    """The last round in which each silo took part."""
    return {silo["name"]: silo.get("lastRound", 0) for silo in status["silos"]}


def pods(consortium: Consortium) -> set[str]:
    """Identities of the clinic's pods, which have not been started again."""
    found = consortium.east.select("pods")
    assert not any(each["restartCount"] for pod in found for each in pod["status"]["containerStatuses"])
    return {pod["metadata"]["uid"] for pod in found}


def processes(consortium: Consortium) -> set[str]:
    """Identities of the laboratory's, which end with the job."""
    serving = consortium.lab.status()["serving"]
    return {f"{name} {pid}" for name, pid in serving["processes"].items()}


def institutions_say(consortium: Consortium, *, reached: bool) -> None:
    """Wait until either institution says this of the hub, since when, and what that means."""
    status = str(reached)

    def clinic() -> Mapping[str, Any] | None:
        found = condition(consortium.east.get("silo", EAST), ConditionType.HUB_REACHED)
        return found if found is not None and found["status"] == status else None

    def laboratory() -> Mapping[str, Any] | None:
        contact = consortium.lab.status()["hub"]["contact"]
        return contact if contact["reached"] is reached else None

    said = [wait_until(clinic, f"the clinic to say {reached}", WAIT_SECONDS)]
    said += [wait_until(laboratory, f"the laboratory to say {reached}", WAIT_SECONDS)]
    assert said[0]["lastTransitionTime"] and said[1]["since"] and said[1]["heard"]
    assert {found["reason"] for found in said} == {"HubReached" if reached else "HubUnreachable"}
    assert reached or all("What runs goes on" in found["message"] for found in said)


def put_back(consortium: Consortium) -> None:
    """Have it that long since the hub heard of either; its gateway begins anew, and so remembers no other time."""
    status = {"lastSeen": timestamp(datetime.now(UTC) - 2 * NOT_SEEN)}
    apply = (
        "apply",
        "--server-side",
        "--field-manager=fedsilo-gateway-seen",
        "--subresource=status",
        "-f",
        "-",
    )
    for name in AWAY_SILOS:
        silo = {"apiVersion": "fedsilo.io/v1alpha1", "kind": "Silo", "metadata": {"name": name}}
        place = consortium.place(name)
        gateway = replace(
            place, kubectl=place.kubectl.as_service_account("fedsilo-system", "fedsilo-gateway")
        )
        gateway.run(*apply, stdin=json.dumps({**silo, "status": status}))
    consortium.hub.restart()


def hub_says(consortium: Consortium, job: ClusterFederation, *, connected: bool) -> None:
    """Wait until the hub says this of both institutions, in the Silo, and in a job that runs."""
    for name in AWAY_SILOS:

        def connected_condition(name: str = name) -> Mapping[str, Any] | None:
            found = condition(consortium.place(name).get("silo", name), ConditionType.CONNECTED)
            return found if found is not None and found["status"] == str(connected) else None

        found = wait_until(
            connected_condition, f"the hub to say of {name} that it is connected: {connected}", WAIT_SECONDS
        )
        if not connected:
            seen = consortium.silo_status(name)["lastSeen"]
            assert f"Nothing was heard of the institution since {seen}" in found["message"]
    if not connected:
        ready = wait_until(
            lambda: (found := job.condition("SilosReady")) and found["reason"] == "NotSeen" and found,
            "the job to say so",
            WAIT_SECONDS,
        )
        assert all(f"Silo {consortium.place(name).name}/{name}: " in ready["message"] for name in AWAY_SILOS)
