"""A status is written by the accounts of those who find it, and by no person, whatever roles permit."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.schema.federation import SILO, patch
from tests.cluster.schema.objects import AGENT

WRITTEN_STATUSES: tuple[dict[str, Any], ...] = (
    {"phase": "Complete"},
    {"conditions": []},
    {"model": {"path": "m", "sha256": "0" * 64}},
    {"round": 9},
)


@pytest.mark.parametrize("status", WRITTEN_STATUSES)
def test_an_administrator_does_not_write_a_jobs_status(api: Kubectl, name: str, status: object) -> None:
    with pytest.raises(KubectlError, match="status: says what the operator has found"):
        patch(api, "fj", name, {"status": status}, "--subresource=status")


def test_an_administrator_does_not_write_a_silos_or_an_agents_status(api: Kubectl) -> None:
    api.apply(SILO)
    api.run("apply", "--server-side", "-f", "-", stdin=AGENT)
    agent = yaml.safe_load(AGENT)["metadata"]
    place = SILO["metadata"]
    for kind, found, status in (
        ("silo", place, {"lastSeen": "2026-01-01T00:00:00Z"}),
        ("fsa", agent, WRITTEN_STATUSES[0]),
    ):
        with pytest.raises(KubectlError, match="status: says what the operator has found"):
            patch(
                api,
                kind,
                found["name"],
                {"status": status},
                "--subresource=status",
                namespace=found["namespace"],
            )
    api.run("delete", "fsa", agent["name"], "-n", agent["namespace"])
