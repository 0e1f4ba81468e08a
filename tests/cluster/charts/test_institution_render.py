"""What the chart of a silo makes in an institution's own cluster."""

from __future__ import annotations

import pytest
import yaml

from fedsilo.api.invitation import read_invitation
from fedsilo.hub.doctor.__main__ import _arguments as doctor_arguments
from fedsilo.wire import make_authority
from fedsilo_operator.connector.__main__ import _arguments as connector_arguments
from tests.cluster.charts.full_values import FULL_VALUES, JOINED_VALUES, MINIMAL_VALUES
from tests.cluster.charts.helm import SILO, Helm, Values, is_hook, objects, render
from tests.cluster.charts.reading import pod_of, rights_of

CRD = "CustomResourceDefinition"


@pytest.mark.parametrize("values", [MINIMAL_VALUES[SILO], FULL_VALUES[SILO]], ids=["least", "full"])
def test_in_an_institutions_own_cluster_nothing_has_rights_outside_of_the_namespace(values: Values) -> None:
    items = [
        item for item in render(SILO, values | JOINED_VALUES, namespace="silo-north") if not is_hook(item)
    ]
    kinds = {item["kind"] for item in items}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}
    assert {item["metadata"]["namespace"] for item in items if item["kind"] != CRD} == {"silo-north"}
    assert [item["spec"]["names"]["kind"] for item in items if item["kind"] == CRD] == ["SiloAgent", "Silo"]
    (binding,) = (item for item in items if item["kind"] == "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == ["fedsilo-connector"]
    rights = rights_of(items)
    assert {right[2] for right in rights if right[1] == "secrets" and right[3] == "get"} == {
        "fedsilo-signing-key"
    }
    # What the silo controller may in the hub's cluster, it may here, and see what it follows; and who leads. Budgets
    # are the job controller's, which is not here.
    roles = [item for item in render(SILO, values) if item["kind"] == "Role" and not is_hook(item)]
    there = {right for right in rights_of(roles) if right[1] != "poddisruptionbudgets"}
    assert there <= rights
    assert {right[3] for right in rights - there if right[1] != "leases"} <= {"get", "list", "watch"}


def test_what_is_the_institutions_stays_when_its_release_goes() -> None:
    kept = {
        item["kind"]
        for item in render(SILO, JOINED_VALUES, namespace="silo-north")
        if item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {CRD, "Silo"}
    assert "fedsilo-signing-key" not in [
        item["metadata"]["name"] for item in render(SILO, JOINED_VALUES, namespace="silo-north")
    ]


def test_what_waits_for_the_definitions_has_no_rights_and_reaches_the_api_server_only() -> None:
    ports = {"apiServer": {"ports": [7443]}}
    items = render(SILO, JOINED_VALUES | ports, namespace="silo-north")
    waits = [item for item in items if item["metadata"]["name"] == "north-definitions"]
    assert [item["kind"] for item in waits] == ["NetworkPolicy", "ServiceAccount", "Pod"]
    policy, _, pod = waits
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 7443}]}]
    assert "ingress" not in policy["spec"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["serviceAccountName"] == "north-definitions"
    subjects = [subject["name"] for item in items for subject in item.get("subjects", [])]
    assert "north-definitions" not in subjects
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    assert pod["spec"]["containers"][0]["image"] == pod_of(deployment)["containers"][0]["image"]
    (silo,) = (item for item in items if item["kind"] == "Silo")
    order = [int(item["metadata"]["annotations"].get("helm.sh/hook-weight", 0)) for item in (*waits, silo)]
    assert order == [-2, -2, -1, 0]


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({"crds": {"install": False}}, []),
        ({}, ["--is-upgrade"]),
        ({}, ["--api-versions", "fedsilo.io/v1alpha1/Silo"]),
    ],
)
def test_where_the_definition_is_served_already_the_silo_is_made_with_the_rest(
    values: Values, options: list[str]
) -> None:
    text = Helm().run(
        "template", "north", str(SILO), "-n", "silo-north", *options, values=JOINED_VALUES | values
    )
    items = objects(text)
    assert "north-definitions" not in [item["metadata"]["name"] for item in items]
    (silo,) = (item for item in items if item["kind"] == "Silo")
    assert not is_hook(silo)
    assert silo["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_token_is_in_a_secret_and_the_invitation_is_whole_there() -> None:
    items = render(SILO, JOINED_VALUES, namespace="silo-north")
    (secret,) = (item for item in items if item["kind"] == "Secret")
    found = read_invitation(secret["stringData"]["invitation.yaml"], "the Secret")
    assert found.token == JOINED_VALUES["token"]
    others = [item for item in items if item["kind"] != "Secret"]
    assert JOINED_VALUES["token"] not in yaml.safe_dump(others)


@pytest.mark.parametrize(
    ("values", "ports", "networks"),
    [
        ({}, [8443], []),
        ({"proxy": {"url": "http://proxy.example:3128"}}, [3128], []),
        ({"egress": {"networks": ["192.0.2.7/32"]}}, [8443], ["192.0.2.7/32"]),
    ],
)
def test_a_connector_gets_out_to_the_hub_or_the_proxy(
    values: Values, ports: list[int], networks: list[str]
) -> None:
    items = render(SILO, JOINED_VALUES | values, namespace="silo-north")
    (policy,) = (
        item
        for item in items
        if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == "fedsilo-connector"
    )
    inside, outside = policy["spec"]["egress"]
    assert [port["port"] for port in inside["ports"]] == [53, 53, 443, 6443]
    assert [port["port"] for port in outside["ports"]] == ports
    assert [peer["ipBlock"]["cidr"] for peer in outside.get("to", [])] == networks
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert connector_arguments(arguments).guard_networks == tuple(networks)


def test_a_proxys_password_is_in_a_secret_only() -> None:
    proxy = {"proxy": {"url": "http://proxy.example:3128", "secret": "login"}}
    items = render(SILO, JOINED_VALUES | proxy, namespace="silo-north")
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "login"}}]
    given = connector_arguments(container["args"])
    assert (given.guard_proxy_secret, given.guard_proxy_port) == ("login", 3128)
    assert "fedsilo-proxy" not in [item["metadata"]["name"] for item in items]


def test_the_doctor_has_what_the_connector_has_and_gets_no_further() -> None:
    pem = make_authority().cert_pem.decode()
    proxy = {"proxy": {"url": "http://proxy.example:3128", "authorities": pem}}
    values = {"egress": {"networks": ["192.0.2.7/32"]}, "agent": {"storage": {"storageClassName": "fast"}}}
    items = render(SILO, JOINED_VALUES | proxy | values, namespace="silo-north")
    (pod,) = (item for item in items if item["kind"] == "Pod" and item["metadata"]["name"].endswith("doctor"))
    (container,) = pod["spec"]["containers"]
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    (connector,) = pod_of(deployment)["containers"]
    assert container["envFrom"] == connector["envFrom"]
    assert [one for one in connector["env"] if one["name"] == "SSL_CERT_FILE"] == container["env"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    given = doctor_arguments(container["args"])
    assert {str(given.invitation.parent), str(given.key.parent), str(given.storage)} < mounted
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        one["name"] for one in pod["spec"]["volumes"]
    }
    (storage,) = (volume["ephemeral"] for volume in pod["spec"]["volumes"] if "ephemeral" in volume)
    assert storage["volumeClaimTemplate"]["spec"]["storageClassName"] == "fast"
    policies = {item["metadata"]["name"]: item["spec"] for item in items if item["kind"] == "NetworkPolicy"}
    own, whole = policies["north-test-doctor"]["egress"], policies["fedsilo-connector"]["egress"]
    assert own[1] == whole[1]
    assert [port["port"] for port in own[0]["ports"]] == [53, 53]
    labels = policies["north-test-doctor"]["podSelector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert "ingress" not in policies["north-test-doctor"]


def test_where_agents_ask_for_a_gpu_the_trainers_image_looks_for_one() -> None:
    resources = FULL_VALUES[SILO]["agent"]["resources"]
    items = render(SILO, FULL_VALUES[SILO] | JOINED_VALUES, namespace="silo-north")
    (pod,) = (pod_of(item) for item in items if item["metadata"]["name"].endswith("-test-gpu"))
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"]
    assert container["image"].startswith("registry.example/fedsilo-trainer")
    assert pod["nodeSelector"] == FULL_VALUES[SILO]["agent"]["nodeSelector"]
    names = [item["metadata"]["name"] for item in render(SILO, JOINED_VALUES, namespace="silo-north")]
    assert not [name for name in names if name.endswith("-test-gpu")]


def test_without_an_invitation_nothing_looks_for_hub_or_gpu() -> None:
    names = [item["metadata"]["name"] for item in render(SILO, FULL_VALUES[SILO])]
    assert not [name for name in names if name.endswith(("doctor", "gpu"))]
