"""Which bad jobs and Silos an API server refuses at apply; the rest the operator, a silo or the aggregator finds."""

from __future__ import annotations

import json

import pytest

from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.schema.federation import NAMESPACE
from tests.unit.bad_specs import JOB_SPEC, JOBS, SILO_SPEC, SILOS, BadSpec, Finder, laid_over

TABLES = {"FederatedJob": (JOBS, JOB_SPEC, NAMESPACE), "Silo": (SILOS, SILO_SPEC, "silo-north")}
CASES = [
    pytest.param(kind, bad, id=f"{kind}: {name}")
    for kind, (table, *_) in TABLES.items()
    for name, bad in table.items()
]


@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_an_api_server_refuses_what_its_rules_can_say(api: Kubectl, kind: str, bad: BadSpec) -> None:
    _, good, namespace = TABLES[kind]
    content = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "bad", "namespace": namespace},
        "spec": laid_over(good, bad.part),
    }
    said = _creation_answer(api, json.dumps(content))
    if bad.finder != Finder.API_SERVER:
        assert said == "accepted"
        return
    assert "is invalid" in said
    # A rule of a mapping or list names that, not the entry.
    parent = bad.field.partition("[")[0].removesuffix(".requests").rpartition(".")[0]
    assert parent in said, said


def _creation_answer(api: Kubectl, text: str) -> str:
    """What the API server says; `kubectl apply` would refuse a large object for its own annotation."""
    try:
        api.run("create", "--dry-run=server", "-f", "-", stdin=text)
    except KubectlError as refusal:
        return str(refusal)
    return "accepted"
