"""Releases on an API server: installed, upgraded, uninstalled, as the READMEs say; what stays, and what goes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedsilo.api.observed import Object
from fedsilo_operator.workloads import aggregator
from hack.cluster.apiserver import api_server
from hack.cluster.kubectl import Kubectl
from hack.examples import documents
from tests.cluster.charts.helm import GLOBAL, OPERATOR, SILO, Helm, quickstart
from tests.cluster.namespace import wait_until
from tests.cluster.test_operator_process import operator as operating
from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal

SYSTEM = "fedsilo-system"
KEY = "fedsilo-signing-key"
DEFINITIONS = ("federatedjobs", "siloagents", "silos")
SILOS = ("north", "east", "south", "west")


@dataclass(frozen=True)
class Cluster:
    """An API server without a node."""

    kubectl: Kubectl
    helm: Helm

    def operator(self, verb: str = "install", *options: str, chart: Path = OPERATOR, **values: Any) -> None:
        self.helm.run(
            *(verb, "fedsilo", str(chart), "-n", SYSTEM, *options),
            *(["--create-namespace"] if verb == "install" else []),
            values={"global": GLOBAL, **values},
        )

    def silo(self, verb: str = "install", name: str = "north", *, chart: Path = SILO, **values: Any) -> None:
        namespace, given = quickstart(name)
        self.helm.run(
            *(verb, name, str(chart), "-n", namespace),
            *(["--create-namespace"] if verb == "install" else []),
            values=given | values,
        )

    def uninstall(self, name: str, namespace: str) -> None:
        self.helm.run("uninstall", name, "-n", namespace, "--wait")

    def uid(self, *what: str) -> str:
        return str(self.kubectl.get(*what)["metadata"]["uid"])

    def definition(self, plural: str) -> Object:
        return self.kubectl.get("crd", f"{plural}.fedsilo.io")

    def definitions(self) -> list[str]:
        """The names of fedsilo's definitions that are there; one that is deleted goes a moment later."""
        names = [item["metadata"]["name"] for item in self.kubectl.get("crd")["items"]]
        return [name for name in names if name.endswith(".fedsilo.io")]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with api_server("charts", controllers=True) as kubeconfig:
        yield Cluster(Kubectl(kubeconfig), Helm(kubeconfig))


def older_chart(chart: Path, folder: Path) -> Path:
    """The chart as an earlier version, whose Silos have no `maxRounds` and no column for the key."""
    copy = folder / chart.name
    shutil.copytree(chart, copy)
    description = copy / "Chart.yaml"
    description.write_text(description.read_text().replace("ersion: 0.1.0", "ersion: 0.0.9"))
    silos = copy / "templates" / "crds" / "silos.yaml"
    if silos.exists():
        without = re.sub(r"^    - name: Key\n.*\n.*\n.*\n", "", silos.read_text(), flags=re.MULTILINE)
        without = re.sub(r"^ +maxRounds:\n(?: {20}.*\n)+", "", without, flags=re.MULTILINE)
        assert without.count("\n") == silos.read_text().count("\n") - 9
        silos.write_text(without)
    return copy


def test_an_upgrade_brings_definitions_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    kubectl = cluster.kubectl
    cluster.operator(chart=older_chart(OPERATOR, tmp_path))
    cluster.silo(chart=older_chart(SILO, tmp_path))
    assert "maxRounds" not in json.dumps(cluster.definition("silos"))
    kubectl.run("create", "secret", "generic", KEY, "-n", "silo-north", "--from-literal=key.pem=x")
    approval = {"job": "a-uid", "specDigest": "0" * 64, "decision": "Approved"}
    kubectl.run(
        *("patch", "silo", "north", "-n", "silo-north", "--type=merge", "--field-manager=fedsilo-approval"),
        *("-p", json.dumps({"spec": {"policy": {"approvals": [approval]}}})),
    )
    seen = [
        ("silo", "north", "-n", "silo-north"),
        ("secret", KEY, "-n", "silo-north"),
        *(("crd", f"{plural}.fedsilo.io") for plural in DEFINITIONS),
    ]
    before = [cluster.uid(*what) for what in seen]

    cluster.operator("upgrade")
    _, given = quickstart("north")
    cluster.silo("upgrade", policy=given["policy"] | {"maxRounds": 9})

    assert [cluster.uid(*what) for what in seen] == before
    definition = cluster.definition("silos")
    assert definition["metadata"]["labels"]["app.kubernetes.io/version"] == "0.1.0"
    assert "Key" in [
        column["name"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]
    ]
    policy = kubectl.get(*seen[0])["spec"]["policy"]
    assert policy["maxRounds"] == 9
    assert [each["job"] for each in policy["approvals"]] == ["a-uid"]


def test_uninstalling_a_silo_keeps_what_is_the_institutions(cluster: Cluster) -> None:
    kubectl = cluster.kubectl
    cluster.operator()
    cluster.silo()
    here = ("-n", "silo-north")
    kubectl.run("create", "secret", "generic", KEY, *here, "--from-literal=key.pem=x")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "digits-north-1a2b3c4d", "namespace": "silo-north"}
    kubectl.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
    stays = [
        ("secret", KEY, *here),
        ("pvc", metadata["name"], *here),
        ("role", "north-operator", *here),
        ("rolebinding", "north-operator", *here),
    ]
    before = [cluster.uid(*what) for what in stays]

    cluster.uninstall("north", "silo-north")
    assert [cluster.uid(*what) for what in stays] == before
    assert kubectl.get("silos,networkpolicies,resourcequotas", *here)["items"] == []

    cluster.silo()
    assert [cluster.uid(*what) for what in stays] == before
    kubectl.get("silo", "north", *here)


def test_uninstalling_the_operator_keeps_definitions_and_data_unless_told_to(cluster: Cluster) -> None:
    kubectl = cluster.kubectl
    cluster.operator()
    cluster.silo()
    kubectl.run("create", "namespace", "federation")
    kubectl.apply(*(item for item in documents("quickstart.yaml") if item["kind"] == "FederatedJob"))
    kubectl.run("create", "secret", "generic", "fedsilo-operator-key", "-n", SYSTEM, "--from-literal=key=x")
    stays = [
        ("federatedjob", "digits", "-n", "federation"),
        ("silo", "north", "-n", "silo-north"),
        ("secret", "fedsilo-operator-key", "-n", SYSTEM),
        *(("crd", f"{plural}.fedsilo.io") for plural in DEFINITIONS),
    ]
    before = [cluster.uid(*what) for what in stays]

    cluster.uninstall("fedsilo", SYSTEM)
    assert [cluster.uid(*what) for what in stays] == before
    for what in (
        ("deployments,poddisruptionbudgets,networkpolicies,roles,rolebindings", "-n", SYSTEM),
        ("validatingadmissionpolicies,validatingadmissionpolicybindings",),
        ("clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/part-of=fedsilo"),
    ):
        assert kubectl.get(*what)["items"] == []

    cluster.operator()
    assert [cluster.uid(*what) for what in stays] == before
    kubectl.run("delete", "federatedjobs", "--all", "-A")
    cluster.operator("upgrade", crds={"keep": False})
    cluster.uninstall("fedsilo", SYSTEM)
    assert not cluster.definitions()
    kubectl.get("secret", "fedsilo-operator-key", "-n", SYSTEM)


def test_a_cluster_of_the_kustomize_base_is_taken_over(cluster: Cluster) -> None:
    cluster.kubectl.run("apply", "--server-side", "-k", str(ROOT / "manifests"))
    before = [cluster.uid("crd", f"{plural}.fedsilo.io") for plural in DEFINITIONS]
    with pytest.raises(AssertionError, match="cannot be imported into the current release"):
        cluster.operator()
    cluster.operator("install", "--take-ownership", "--force-conflicts")
    assert [cluster.uid("crd", f"{plural}.fedsilo.io") for plural in DEFINITIONS] == before
    cluster.operator("upgrade", "--force-conflicts", replicas=3)
    assert cluster.kubectl.get("deployment", "fedsilo-operator", "-n", SYSTEM)["spec"]["replicas"] == 3


def test_two_operators_in_a_cluster_are_refused(cluster: Cluster) -> None:
    cluster.operator()
    said = cluster.helm.refusal(
        *("install", "second", str(OPERATOR), "-n", "other", "--create-namespace"),
        values={"global": {"registry": "registry.example"}},
    )
    assert 'must equal "second": current value is "fedsilo"' in said


@pytest.fixture
def terminal(cluster: Cluster, terminal: Terminal) -> Terminal:
    """A checkout's terminal whose kubectl and helm talk to this API server."""
    terminal.environment["KUBECONFIG"] = str(cluster.kubectl.kubeconfig)
    return terminal


@runs(
    "charts/fedsilo/README.md",
    "helm upgrade fedsilo charts/fedsilo -n fedsilo-system --set global.registry=registry.example",
    "helm uninstall fedsilo -n fedsilo-system",
    "helm install fedsilo charts/fedsilo -n fedsilo-system --set global.registry=registry.example",
    "kubectl delete federatedjobs --all -A",
    "helm upgrade fedsilo charts/fedsilo -n fedsilo-system --reuse-values --set crds.keep=false",
)
@runs(
    "charts/fedsilo-silo/README.md",
    "helm install north charts/fedsilo-silo -n silo-north --create-namespace -f north.yaml",
    "kubectl label namespace silo-north pod-security.kubernetes.io/enforce=restricted",
    "kubectl get silo north -n silo-north -o wide",
    "helm upgrade north charts/fedsilo-silo -n silo-north -f north.yaml",
    "helm uninstall north -n silo-north",
)
@runs(
    "charts/fedsilo/README.md",
    "helm install fedsilo charts/fedsilo -n fedsilo-system --create-namespace --set global.registry=registry.example",
    "kubectl label namespace fedsilo-system pod-security.kubernetes.io/enforce=restricted",
)
def test_the_commands_of_the_readmes(cluster: Cluster, terminal: Terminal) -> None:
    """The operator is installed, a silo comes and goes, then the rest of the operator's page."""
    (values,) = blocks("charts/fedsilo-silo/README.md", "yaml")
    (terminal.folder / values.splitlines()[0].removeprefix("# ")).write_text(values)
    for command in terminal.commands:
        terminal.type(command)
    terminal.type("helm uninstall fedsilo -n fedsilo-system")
    wait_until(lambda: not cluster.definitions(), "the definitions to go")


PROMETHEUS = {
    "ServiceMonitor": "fedsilo-operator",
    "PodMonitor": "fedsilo-aggregators",
    "PrometheusRule": "fedsilo",
}
"""Kinds of the Prometheus Operator, and what the chart calls its own."""


def foreign_definition(kind: str) -> Object:
    """A definition of one of these kinds that takes anything."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"kind": kind, "plural": plural}
    group = "monitoring.coreos.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


@runs(
    "docs/metrics.md",
    "helm upgrade fedsilo charts/fedsilo -n fedsilo-system --reuse-values"
    " --set metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true"
    " --set metrics.rules.enabled=true,metrics.dashboard.enabled=true --set metrics.labels.release=prometheus",
)
def test_the_upgrade_that_brings_what_the_prometheus_operator_looks_for(
    cluster: Cluster, terminal: Terminal
) -> None:
    kubectl = cluster.kubectl
    kubectl.apply(*(foreign_definition(kind) for kind in PROMETHEUS))
    kubectl.run("wait", "--for=condition=Established", "crd", "--all")
    cluster.operator("install", replicas=3)
    (command,) = terminal.commands
    assert "has been upgraded" in terminal.type(command)
    for kind, name in PROMETHEUS.items():
        made = kubectl.get(kind, name, "-n", SYSTEM)
        assert made["metadata"]["labels"]["release"] == "prometheus"
    (dashboard,) = kubectl.get("configmaps", "-n", SYSTEM, "-l", "grafana_dashboard")["items"]
    assert all(json.loads(text)["panels"] for text in dashboard["data"].values())
    assert kubectl.get("deployment", "fedsilo-operator", "-n", SYSTEM)["spec"]["replicas"] == 3


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Path:
    """A kubeconfig with a token of the operator's account, which a release has made for one namespace of jobs."""
    kubectl = cluster.kubectl
    for namespace in ("federation", "elsewhere"):
        kubectl.run("create", "namespace", namespace)
    cluster.operator(jobNamespaces=["federation"])
    content = yaml.safe_load(kubectl.kubeconfig.read_text())
    token = kubectl.run("create", "token", "fedsilo-operator", "-n", SYSTEM).strip()
    content["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def test_an_operator_with_rights_in_some_namespaces(cluster: Cluster, account: Path, tmp_path: Path) -> None:
    """A job starts, a silo leaves and comes back with its key, the job goes: all with the rights that charts give."""
    kubectl = cluster.kubectl
    for name in SILOS:
        cluster.silo("install", name)
    (job,) = (item for item in documents("quickstart.yaml") if item["kind"] == "FederatedJob")
    with operating("narrow", account, tmp_path) as process:
        kubectl.apply(job)
        wait_until(lambda: len(trainers(kubectl)) == len(SILOS), "trainers")
        owner = kubectl.get("fj", "digits", "-n", "federation")
        as_operator = Kubectl(account)
        as_operator.apply(aggregator.account(owner), aggregator.role(owner), aggregator.role_binding(owner))
        key = public_key(kubectl)

        cluster.uninstall("north", "silo-north")
        wait_until(lambda: not trainers(kubectl)["silo-north"], "a trainer that is stopped")
        cluster.silo()
        wait_until(lambda: public_key(kubectl) == key, "the same key")
        wait_until(lambda: trainers(kubectl)["silo-north"], "a trainer that goes on")

        cluster.uninstall("north", "silo-north")
        kubectl.run("delete", "federatedjob", "digits", "-n", "federation", "--wait", "--timeout=60s")
        assert kubectl.get("siloagents", "-A")["items"] == []
        assert "refused" not in process.log.read_text()

        elsewhere = {"name": "stranger", "namespace": "elsewhere"}
        kubectl.apply(job | {"metadata": elsewhere})
        wait_until(lambda: "refused" in process.log.read_text(), "a word about it")
        assert 'in the namespace "elsewhere"' in process.log.read_text()


def trainers(kubectl: Kubectl) -> dict[str, bool]:
    """Namespaces with a trainer, and whether it is meant to run."""
    jobs = kubectl.get("jobs.batch", "-A", "-l", "app.kubernetes.io/component=trainer")["items"]
    return {item["metadata"]["namespace"]: not item["spec"].get("suspend", False) for item in jobs}


def public_key(kubectl: Kubectl) -> str:
    status = kubectl.get("silo", "north", "-n", "silo-north").get("status") or {}
    return str(status.get("publicKey"))
