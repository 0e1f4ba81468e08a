"""Manifests of small jobs over the digits."""

from __future__ import annotations

from typing import Any

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.payload_kinds import KINDS
from tests.integration.local.manifest import job, silo


def manifest_of(silos: list[dict[str, Any]], **spec: Any) -> JobManifest:
    """These silos and one job; keyword arguments are merged into its spec."""
    parsed = FederatedJob.model_validate(job(silos, **spec))
    return JobManifest("job.yaml", parsed, tuple(Silo.model_validate(one) for one in silos))


def sharing(count: int, scheme: str = "dirichlet", **policy: Any) -> list[dict[str, Any]]:
    """Silos that divide the digits, unevenly by default, and permit everything unless told otherwise."""
    config = {"beta": 0.5} if scheme == "dirichlet" else {}
    division = {"scheme": scheme, "silos": count, "config": config}
    permitted = {"payloadKinds": list(KINDS)} | policy
    return [
        silo(f"s{index}", {"partition": division | {"index": index}}, **permitted) for index in range(count)
    ]
