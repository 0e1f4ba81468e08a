"""What the operator's account may do: what it needs, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo_operator.workloads import aggregator
from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.rights import may, rights
from tests.cluster.schema.federation import job

GOLDEN = Path(__file__).with_name("rights.golden").read_text()

FORBIDDEN_REQUESTS = (
    "get secrets/anything -n silo-north",
    "list secrets -n fedsilo-system",
    "watch secrets -n fedsilo-system",
    "get secrets/fedsilo-operator-key -n silo-north",
    "update secrets/fedsilo-signing-key -n silo-north",
    "patch secrets/anything -n silo-north",
    "patch secrets/fedsilo-operator-key -n fedsilo-system",
    "delete persistentvolumeclaims -n silo-north",
    "update federatedjobs.fedsilo.io -n federation",
    "create federatedjobs.fedsilo.io -n federation",
    "patch silos.fedsilo.io -n silo-north",
    "create pods -n silo-north",
    "create pods --subresource=exec -n silo-north",
    "get pods --subresource=log -n silo-north",
    "patch leases.coordination.k8s.io/another -n fedsilo-system",
    "create leases.coordination.k8s.io -n kube-system",
    "escalate roles.rbac.authorization.k8s.io -n federation",
    "bind clusterroles.rbac.authorization.k8s.io",
    "impersonate users",
    "patch nodes",
    "create pods --subresource=eviction -n silo-north",
)


@pytest.fixture(scope="module")
def operator(api: Kubectl) -> Kubectl:
    return api.as_service_account("fedsilo-system", "fedsilo-operator")


def test_rights(operator: Kubectl) -> None:
    assert rights(operator, "fedsilo-system") == GOLDEN
    assert "*" not in GOLDEN


@pytest.mark.parametrize("what", FORBIDDEN_REQUESTS)
def test_forbidden(operator: Kubectl, what: str) -> None:
    assert not may(operator, what)


def test_a_silos_signing_key_is_read_and_replaced_and_no_other_secret(
    api: Kubectl, operator: Kubectl
) -> None:
    for name in ("fedsilo-signing-key", "other"):
        operator.run("create", "secret", "generic", name, "-n", "silo-west", "--from-literal=key=1")
    operator.get("secret", "fedsilo-signing-key", "-n", "silo-west")
    assert 'secrets "other" is forbidden' in operator.refusal("get", "secret", "other", "-n", "silo-west")
    change = ("-n", "silo-west", "--type=merge", '--patch={"stringData": {"key": "2", "before": "1"}}')
    operator.run("patch", "secret", "fedsilo-signing-key", *change)
    assert 'secrets "other" is forbidden' in operator.refusal("patch", "secret", "other", *change)
    api.run("delete", "secret", "fedsilo-signing-key", "other", "-n", "silo-west")


def test_the_operator_gives_an_aggregator_its_role_and_no_more(api: Kubectl, operator: Kubectl) -> None:
    """RBAC lets nobody give rights that he has not himself."""
    api.apply(job("granted"))
    owner = api.get("fj", "granted", "-n", "federation")
    made, role, binding = (
        make(owner) for make in (aggregator.account, aggregator.role, aggregator.role_binding)
    )
    operator.apply(made, role, binding)
    aggregators = api.as_service_account("federation", made["metadata"]["name"])
    aggregators.get("fj", "granted", "-n", "federation")
    for refused in (
        "list federatedjobs",
        "get federatedjobs/other",
        "patch federatedjobs/granted",
        "get secrets",
    ):
        assert not may(aggregators, f"{refused} -n federation")
    assert may(aggregators, "patch federatedjobs/granted --subresource=status -n federation")
    more = role | {"rules": [*role["rules"], {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    with pytest.raises(KubectlError, match="attempting to grant RBAC permissions not currently held"):
        operator.apply(more)
    api.run("delete", "fj,sa,role,rolebinding", "--all", "-n", "federation")
