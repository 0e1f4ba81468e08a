"""What the charts make of their values: the same objects as the kustomize base, and the rights that are needed."""

from __future__ import annotations

import os
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from fedsilo.api.observed import Object
from fedsilo.api.silo import Silo
from hack.cluster.binaries import programs
from hack.examples import documents
from hack.images import reference
from hack.operator import ROLES
from tests.cluster.charts.full_values import (
    FULL_VALUES,
    JOINED_VALUES,
    MINIMAL_VALUES,
    NORTH,
    TEMPLATE,
    WATCHED_VALUES,
)
from tests.cluster.charts.helm import CHARTS, OPERATOR, SILO, Helm, Values, is_hook, quickstart, render
from tests.cluster.charts.reading import pod_of, rights_of
from tests.paths import ROOT

CRD = "CustomResourceDefinition"

ADDED_METADATA = {
    "helm.sh/chart",
    "helm.sh/resource-policy",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/part-of",
}
"""Labels and annotations that are there for Helm or for kustomize."""


@pytest.mark.parametrize("values", [MINIMAL_VALUES, FULL_VALUES], ids=["least", "full"])
@pytest.mark.parametrize("chart", [OPERATOR, SILO], ids=lambda chart: chart.name)
def test_helm_finds_nothing_to_say(chart: Path, values: dict[Path, Values]) -> None:
    Helm().run("lint", "--strict", str(chart), values=values[chart])


SHIPPED_VALUES = sorted(CHARTS.glob("*/ci/*-values.yaml"))


@pytest.mark.parametrize("file", SHIPPED_VALUES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_the_charts_pass_as_shipped(file: Path) -> None:
    """chart-testing and people who look at a chart take these."""
    Helm().run("lint", "--strict", str(file.parents[1]), "--values", str(file))
    assert Helm().run("template", "release", str(file.parents[1]), "--values", str(file))


def test_both_charts_have_values_to_be_looked_at_with() -> None:
    assert {file.parents[1] for file in SHIPPED_VALUES} == {OPERATOR, SILO}


def test_the_operator_is_that_of_the_kustomize_base() -> None:
    charted = {_identity(item): _plain_object(item) for item in render(OPERATOR, {}) if not is_hook(item)}
    based = {
        _identity(item): _plain_object(item) for item in _kustomized_objects() if item["kind"] != "Namespace"
    }
    assert charted.keys() == based.keys()
    for identity, item in based.items():
        assert charted[identity] == item, identity


def test_the_installation_on_the_test_cluster_differs_in_images_and_the_gateway_alone() -> None:
    base = {_identity(item): item for item in _kustomized_objects()}
    (container,) = base["Deployment", "fedsilo-system", "fedsilo-operator"]["spec"]["template"]["spec"][
        "containers"
    ]
    container["image"] = reference("operator")
    others = [argument for argument in container["args"] if "-image=" not in argument]
    container["args"] = [*(f"--{role}-image={reference(role)}" for role in ROLES), *others, "--gateway"]
    assert {_identity(item): item for item in _kustomized_objects(ROOT / "hack" / "install")} == base


def test_what_watches_the_operator_is_that_of_the_kustomize_component(tmp_path: Path) -> None:
    base = os.path.relpath(ROOT / "manifests", tmp_path)
    content = {"resources": [base], "components": [f"{base}/monitoring"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content))
    values = {"metrics": WATCHED_VALUES | {"labels": {}}}
    charted = {_identity(item): _plain_object(item) for item in render(OPERATOR, values) if not is_hook(item)}
    based = {
        _identity(item): _plain_object(item)
        for item in _kustomized_objects(tmp_path)
        if item["kind"] != "Namespace"
    }
    assert charted.keys() == based.keys()
    for identity, item in based.items():
        assert charted[identity] == item, identity


def test_labels_lead_a_prometheus_to_monitors_and_rules() -> None:
    kinds = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    watching = [
        item
        for chart in (OPERATOR, SILO)
        for item in render(chart, FULL_VALUES[chart])
        if item["kind"] in kinds
    ]
    assert len(watching) == 4
    assert all(item["metadata"]["labels"]["release"] == "one" for item in watching)
    (of_jobs,) = (item for item in watching if item["metadata"]["name"] == "fedsilo-aggregators")
    assert of_jobs["spec"]["namespaceSelector"] == {"matchNames": ["research", "teaching"]}


def test_guards_are_asked_only_by_whom_the_institution_names() -> None:
    policies = [item for item in render(SILO, NORTH) if item["kind"] == "NetworkPolicy" and not is_hook(item)]
    assert [item["metadata"]["name"] for item in policies] == ["north-default-deny"]
    (opened,) = (
        item
        for item in render(SILO, NORTH | {"metrics": {"from": "team=watch,use=metrics"}})
        if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == "north-metrics"
    )
    (rule,) = opened["spec"]["ingress"]
    labels = {"team": "watch", "use": "metrics"}
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": labels}}]
    assert [port["port"] for port in rule["ports"]] == [8080]


@pytest.mark.parametrize("name", ["north", "east", "south", "west"])
def test_a_silo_is_that_of_the_quickstart(name: str) -> None:
    namespace, values = quickstart(name)
    (made,) = (item for item in render(SILO, values, name, namespace) if item["kind"] == "Silo")
    (example,) = (
        item
        for item in documents("quickstart.yaml")
        if item["kind"] == "Silo" and item["metadata"]["name"] == name
    )
    del made["metadata"]["labels"]
    assert Silo.model_validate(made) == Silo.model_validate(example)


def test_rights_by_namespace_are_together_those_in_all_namespaces() -> None:
    system = "fedsilo-system"
    everywhere = rights_of(render(OPERATOR, {}))
    own = [item for item in render(OPERATOR, {}) if item["kind"] == "Role" and not is_hook(item)]
    assert everywhere >= rights_of(own)

    narrow = [item for item in render(OPERATOR, {"jobNamespaces": ["research"]}) if not is_hook(item)]
    cluster = [item for item in narrow if item["kind"] == "ClusterRole" and not _is_for_people(item)]
    assert {verb for *_, verb in rights_of(cluster)} == {"get", "list", "watch"}
    assert not [right for right in rights_of(cluster) if right[1] == "secrets"]
    assert {item["metadata"]["namespace"] for item in narrow if item["kind"] == "Role"} == {
        system,
        "research",
    }

    silo = [item for item in render(SILO, NORTH) if item["kind"] == "Role" and not is_hook(item)]
    assert rights_of(narrow) | rights_of(silo) == everywhere


def _is_for_people(role: Object) -> bool:
    """Whether it only adds to what people may do by the roles that Kubernetes has."""
    return any(label.startswith("rbac.authorization.k8s.io/") for label in role["metadata"]["labels"])


def test_an_institution_that_brings_its_key_lets_nobody_make_secrets() -> None:
    may = ("", "secrets", "", "create")
    assert may in rights_of(render(SILO, NORTH))
    assert may not in rights_of(render(SILO, NORTH | {"signingKey": {"create": False}}))


@pytest.mark.parametrize(("replicas", "names"), [(1, set()), (2, {"fedsilo-gateway"})])
def test_of_several_gateways_one_stays_through_a_drain(replicas: int, names: set[str]) -> None:
    gateway = {"enabled": True, "url": "https://hub.example", "replicas": replicas}
    items = render(OPERATOR, {"replicas": 1, "gateway": gateway})
    budgets = [item for item in items if item["kind"] == "PodDisruptionBudget"]
    assert {item["metadata"]["name"] for item in budgets} == names
    (deployed,) = (
        item["spec"]["template"]["metadata"]["labels"]
        for item in items
        if item["kind"] == "Deployment" and item["metadata"]["name"] == "fedsilo-gateway"
    )
    for budget in budgets:
        assert budget["spec"]["selector"]["matchLabels"].items() <= deployed.items()


@pytest.mark.parametrize(
    ("replicas", "namespaces", "keep"), list(product([1, 2, 5], [[], ["a"], ["a", "b"]], [True, False]))
)
def test_operator_matrix(replicas: int, namespaces: list[str], keep: bool) -> None:
    values = {"replicas": replicas, "jobNamespaces": namespaces, "crds": {"keep": keep}}
    items = [item for item in render(OPERATOR, values) if not is_hook(item)]
    kinds = [item["kind"] for item in items]
    assert kinds.count("PodDisruptionBudget") == (replicas > 1)
    assert kinds.count("Role") == kinds.count("RoleBinding") == 1 + len(namespaces)
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == replicas
    definitions = [item for item in items if item["kind"] == "CustomResourceDefinition"]
    assert len(definitions) == 3
    policies = [
        item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for item in definitions
    ]
    assert policies == ["keep" if keep else None] * 3


@pytest.mark.parametrize("digest", ["", f"sha256:{'1' * 64}"])
@pytest.mark.parametrize("tag", ["", "2.0"])
def test_images(tag: str, digest: str) -> None:
    roles = ("operator", "aggregator", "guard", "trainer")
    values = {
        "images": {role: {"repository": f"r.example/{role}", "tag": tag, "digest": digest} for role in roles}
    }
    (deployment,) = (item for item in render(OPERATOR, values) if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    version = f"@{digest}" if digest else f":{tag or '0.1.0'}"
    assert container["image"] == f"r.example/operator{version}"
    assert container["args"][:3] == [f"--{role}-image=r.example/{role}{version}" for role in roles[1:]]


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("secret", ["", "certificate"])
def test_the_dashboard_is_off_the_network_unless_it_has_a_certificate(enabled: bool, secret: str) -> None:
    values = {"dashboard": {"enabled": enabled, "tlsSecret": secret}}
    items = [item for item in render(OPERATOR, values) if not is_hook(item)]
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    served = enabled and bool(secret)
    assert [argument for argument in container["args"] if "dashboard" in argument] == [
        *(["--dashboard-port=8081"] if enabled else []),
        *(["--dashboard-tls=/etc/fedsilo/dashboard"] if served else []),
    ]
    assert [port["name"] for port in container["ports"]] == ["health", *(["dashboard"] if served else [])]
    named = [item["kind"] for item in items if item["metadata"]["name"] == "fedsilo-dashboard"]
    assert sorted(named) == (["ClusterRole", "ClusterRoleBinding", "Service"] if served else [])
    (policy,) = (item for item in items if item["kind"] == "NetworkPolicy")
    let_in = [rule["from"][0]["namespaceSelector"]["matchLabels"] for rule in policy["spec"]["ingress"]]
    assert let_in == [{"fedsilo.io/metrics": "true"}, *([{"fedsilo.io/dashboard": "true"}] if served else [])]
    reviews = {
        right[1] for right in rights_of(items) if right[3] == "create" and right[1].endswith("reviews")
    }
    assert reviews == ({"tokenreviews", "subjectaccessreviews"} if served else set())


@pytest.mark.parametrize("quota", [{}, {"services": 0, "requests.nvidia.com/gpu": 4}])
@pytest.mark.parametrize("name", ["", "north"])
def test_silo_matrix(name: str, quota: Values) -> None:
    items = render(SILO, NORTH | {"name": name, "quota": quota}, release="release")
    (silo,) = (item for item in items if item["kind"] == "Silo")
    assert silo["metadata"]["name"] == (name or "release")
    quotas = [item["spec"]["hard"] for item in items if item["kind"] == "ResourceQuota"]
    # Helm deletes no default by giving an empty mapping: what is there by default stays.
    assert quotas == [{"services": "0"} | {what: str(amount) for what, amount in quota.items()}]
    assert all(item["metadata"]["name"].startswith(name or "release") for item in items)


def test_a_quota_can_be_left_out() -> None:
    items = render(SILO, NORTH | {"quota": {"services": None}})
    assert "ResourceQuota" not in [item["kind"] for item in items]


@pytest.mark.parametrize("chart", [OPERATOR, SILO], ids=lambda chart: chart.name)
def test_every_pod_keeps_the_restricted_level_and_asks_for_what_a_quota_may_demand(chart: Path) -> None:
    pods = [
        pod_of(item) for item in render(chart, FULL_VALUES[chart]) if item["kind"] in ("Deployment", "Pod")
    ]
    assert len(pods) == 2
    if chart == SILO:
        joined = render(SILO, FULL_VALUES[SILO] | JOINED_VALUES, namespace="silo-north")
        pods += [pod_of(item) for item in joined if item["kind"] in ("Deployment", "Pod")]
    for spec in pods:
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert [secret["name"] for secret in spec["imagePullSecrets"]] == FULL_VALUES[chart][
            "imagePullSecrets"
        ]
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


@pytest.mark.parametrize("chart", [OPERATOR, SILO], ids=lambda chart: chart.name)
def test_no_program_is_killed_because_its_node_is_slow_to_start_it(chart: Path) -> None:
    """On a node with much else to do, the second of CPU that a start takes lasts longer than liveness waits."""
    values = FULL_VALUES[chart] | (JOINED_VALUES if chart == SILO else {})
    rendered = render(chart, values, namespace="silo-north" if chart == SILO else "fedsilo-system")
    pods = [pod_of(item) for item in rendered if item["kind"] == "Deployment"]
    assert pods
    for spec in pods:
        (container,) = spec["containers"]
        startup, liveness = container["startupProbe"], container["livenessProbe"]
        assert startup["httpGet"] == liveness["httpGet"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def _kustomized_objects(folder: Path = ROOT / "manifests") -> list[Object]:
    command = [str(programs() / "kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


@pytest.mark.parametrize("named", ["", "research"])
def test_classes_of_its_own_are_for_what_names_no_other(named: str) -> None:
    gateway = {"enabled": True, "url": "https://hub.example", "keySecret": "hub", "priorityClassName": named}
    values: Values = {"priorityClassName": named, "jobPriorityClassName": named, "gateway": gateway}
    items = render(OPERATOR, values | {"priorityClasses": {"create": True}})
    classes = {item["metadata"]["name"]: item for item in items if item["kind"] == "PriorityClass"}
    assert {name: item["value"] for name, item in classes.items()} == {
        "fedsilo-control-plane": 1_000_000,
        "fedsilo-jobs": 1_000,
    }
    assert classes["fedsilo-jobs"]["preemptionPolicy"] == "Never"
    assert not any(item.get("globalDefault") for item in classes.values())
    pods = [pod_of(item) for item in items if item["kind"] == "Deployment"]
    assert [pod["priorityClassName"] for pod in pods] == [named or "fedsilo-control-plane"] * 2
    assert (
        f"--job-priority-class={named or 'fedsilo-jobs'}"
        in pods[0]["containers"][0]["args"] + pods[1]["containers"][0]["args"]
    )


def _identity(item: Object) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def _plain_object(item: Object) -> Object:
    """An object without what tells only who made it, and with rights that can be compared."""
    metadata = dict(item["metadata"])
    for field in ("labels", "annotations"):
        rest = {key: value for key, value in metadata.pop(field, {}).items() if key not in ADDED_METADATA}
        metadata |= {field: rest} if rest else {}
    plain = item | {"metadata": metadata}
    if "rules" in item:
        plain["rules"] = sorted(rights_of([item]))
    return plain


@pytest.mark.parametrize("chart", [OPERATOR, SILO], ids=lambda chart: chart.name)
def test_what_a_platform_asks_of_pods_reaches_every_pod(chart: Path) -> None:
    values = FULL_VALUES[chart] | (JOINED_VALUES if chart == SILO else {})
    if chart == OPERATOR:
        gateway = {"enabled": True, "url": "https://hub.example", "keySecret": "hub", **TEMPLATE}
        values |= {"gateway": gateway}
    items = render(chart, values, namespace="silo-north" if chart == SILO else "fedsilo-system")
    assert all(item["metadata"]["labels"]["cost-centre"] == "4711" for item in items)
    deployments = [item for item in items if item["kind"] == "Deployment"]
    assert len(deployments) == (2 if chart == OPERATOR else 1)
    for item in deployments:
        metadata, spec = item["spec"]["template"]["metadata"], pod_of(item)
        assert metadata["labels"].items() >= {"team": "blue", "cost-centre": "4711"}.items()
        assert item["spec"]["selector"]["matchLabels"].items() <= metadata["labels"].items()
        assert "team" not in item["spec"]["selector"]["matchLabels"]
        assert metadata["annotations"]["example.com/cost"] == "4711"
        for field in ("priorityClassName", "nodeSelector", "tolerations", "topologySpreadConstraints"):
            assert spec[field] == TEMPLATE[field]
        assert "podAntiAffinity" in spec["affinity"], (
            "without an affinity of theirs they prefer different nodes"
        )
    for item in items:
        if item["kind"] == "Pod":
            assert item["spec"]["priorityClassName"] in ("platform", "research")
            assert item["spec"]["tolerations"] and item["spec"]["nodeSelector"]
