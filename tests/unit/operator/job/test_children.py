"""The objects of the aggregator: what a person would review, and what other parts rely on."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from fedsilo.api.agent import SiloAgent
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object
from fedsilo.api.output import MlflowSpec
from fedsilo.wire import SigningKey
from fedsilo_aggregator.config import AggregatorConfig
from fedsilo_operator.objects import CLAIM, CONFIG_MAP, FEDERATED_JOB, JOB, NETWORK_POLICY, SECRET, satisfies
from fedsilo_operator.settings import PLATFORMS
from fedsilo_operator.workloads import aggregator
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import NORTH, SETTINGS, SOUTH, manifest, public_key

GOLDEN = Path(__file__).with_name("golden")
VOLUMES = [
    {
        "name": "test-set",
        "loader": "npz",
        "config": {"path": "test-set/a.npz"},
        "volume": {"persistentVolumeClaim": "public"},
    },
    {
        "name": "other",
        "loader": "npz",
        "config": {"path": "other/b.npz"},
        "volume": {"persistentVolumeClaim": "other-data"},
    },
    {"name": "digits", "loader": "sklearn:digits", "config": {"split": "test"}},
]
AGGREGATOR = {
    "datasets": VOLUMES,
    "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
    "storage": {"size": "50Gi", "storageClassName": "fast"},
}


@pytest.fixture(scope="module")
def harness() -> JobHarness:
    harness = JobHarness(manifest(aggregator=AGGREGATOR, backoffLimit=3)).start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    return harness


def the(harness: JobHarness, kind: Any) -> Object:
    (found,) = harness.cluster.objects(kind)
    return found


def reviewed_object(obj: Object) -> Object:
    """What the operator wrote: without what an API server adds, and without keys."""
    content: Object = json.loads(json.dumps(obj))
    for name in ("managedFields", "resourceVersion", "creationTimestamp", "generation"):
        content["metadata"].pop(name, None)
    for owner in content["metadata"].get("ownerReferences", ()):
        owner["uid"] = "..."
    content["metadata"]["uid"] = "..."
    if obj["kind"] == "Secret":
        content["data"] = dict.fromkeys(content["data"], "...")
    if obj["kind"] == "ConfigMap":
        content["data"] = {name: json.loads(text) for name, text in content["data"].items()}
        content["data"]["trust.json"]["caCertificate"] = "..."
    return content


def test_golden(harness: JobHarness) -> None:
    kinds = ["ServiceAccount", "Role", "RoleBinding", "Service", "NetworkPolicy", "ConfigMap", "Secret"]
    kinds += ["PersistentVolumeClaim", "Job"]
    by_name = {kind.name: objects for kind, objects in harness.all_objects().items()}
    found = yaml.safe_dump_all(
        [reviewed_object(by_name[kind][0]) for kind in kinds], sort_keys=True, width=100
    )
    assert found == (GOLDEN / "aggregator.yaml").read_text()


def test_an_aggregator_admits_the_gateway_only_where_there_is_one(harness: JobHarness) -> None:
    (job,) = harness.cluster.objects(FEDERATED_JOB)

    def sources(gateway: bool) -> Any:
        settings = replace(SETTINGS, gateway=gateway)
        first, *_ = aggregator.network_policy(job, settings, from_anywhere=False)["spec"]["ingress"]
        return first["from"]

    assert sources(True) == [
        *sources(False),
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SETTINGS.namespace}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/component": "gateway"}},
        },
    ]


MLFLOW = {"trackingUri": "http://mlflow.tools.svc:5000", "credentialsSecret": "mlflow"}


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("http://mlflow.tools.svc:5000", 5000),
        ("https://mlflow.example/api", 443),
        ("http://mlflow.example", 80),
    ],
)
def test_an_aggregator_reaches_the_mlflow_server_that_the_job_names(
    harness: JobHarness, address: str, port: int
) -> None:
    (job,) = harness.cluster.objects(FEDERATED_JOB)
    server = MlflowSpec.model_validate(MLFLOW | {"trackingUri": address})
    before = aggregator.network_policy(job, SETTINGS, from_anywhere=False)["spec"]
    after = aggregator.network_policy(job, SETTINGS, from_anywhere=False, mlflow=server)["spec"]
    assert after["ingress"] == before["ingress"]
    assert after["egress"] == [
        *before["egress"],
        {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        {"ports": [{"protocol": "TCP", "port": port}]},
    ]


def test_an_aggregator_gets_the_entries_for_mlflow_and_no_others(harness: JobHarness) -> None:
    seen = harness.current_observation()
    assert seen is not None

    def variables(**output: Any) -> list[Object]:
        job = {**seen.job, "spec": seen.job["spec"] | {"output": output}}
        made = aggregator.workload(job, FederatedJob.model_validate(job), SETTINGS)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert "envFrom" not in container
        return list(container.get("env", []))

    assert variables(mlflow={"trackingUri": "http://mlflow.example"}) == variables(tensorboard=True)
    names = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    assert [found for found in variables(mlflow=MLFLOW) if "valueFrom" in found] == [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": "mlflow", "key": name, "optional": True}}}
        for name in names
    ]


def test_an_image_is_pulled_with_the_secrets_that_the_job_names(harness: JobHarness) -> None:
    seen = harness.current_observation()
    assert seen is not None
    names = ["registry", "mirror"]
    job = {**seen.job, "spec": seen.job["spec"] | {"aggregator": {"imagePullSecrets": names}}}
    pod = aggregator.workload(job, FederatedJob.model_validate(job), SETTINGS)["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": name} for name in names]
    assert "imagePullSecrets" not in the(harness, JOB)["spec"]["template"]["spec"]


def test_a_pod_names_no_user_where_the_platform_assigns_them(harness: JobHarness) -> None:
    seen = harness.current_observation()
    assert seen is not None
    settings = replace(SETTINGS, user=PLATFORMS["openshift"])
    made = aggregator.workload(seen.job, FederatedJob.model_validate(seen.job), settings)
    context = made["spec"]["template"]["spec"]["securityContext"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()
    assert context["runAsNonRoot"] is True


def test_initial_weights_on_a_claim_are_mounted_where_their_paths_begin(harness: JobHarness) -> None:
    seen = harness.current_observation()
    assert seen is not None
    given = {"sha256": "0" * 64, "run": "initial_weights", "persistentVolumeClaim": "first"}
    job = {**seen.job, "spec": seen.job["spec"] | {"model": {"name": "lenet", "initialWeights": given}}}
    pod = aggregator.workload(job, FederatedJob.model_validate(job), SETTINGS)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {
        "name": "initial-weights",
        "persistentVolumeClaim": {"claimName": "first", "readOnly": True},
    } in pod["volumes"]
    assert {"name": "initial-weights", "mountPath": "/data/initial_weights", "readOnly": True} in container[
        "volumeMounts"
    ]


def test_an_aggregator_serves_metrics_only_where_they_are_wanted(harness: JobHarness) -> None:
    seen = harness.current_observation()
    assert seen is not None
    job, parsed = seen.job, FederatedJob.model_validate(seen.job)
    for wanted in ({"team": "watch"}, None):
        settings = replace(SETTINGS, metrics_from=wanted)
        made = aggregator.workload(job, parsed, settings)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert ("--metrics-port" in container["args"]) == (wanted is not None)
        assert len(container["ports"]) == (1 if wanted is None else 2)
        _, *watching = aggregator.network_policy(job, settings, from_anywhere=False)["spec"]["ingress"]
        assert [rule["from"] for rule in watching] == (
            [] if wanted is None else [[{"namespaceSelector": {"matchLabels": wanted}}]]
        )


def test_the_aggregator_understands_its_configuration(harness: JobHarness) -> None:
    config = AggregatorConfig.model_validate_json(the(harness, CONFIG_MAP)["data"]["config.json"])
    assert config.job.metadata.uid == harness.uid
    assert {name: key.to_text() for name, key in config.keys().items()} == {
        str(ref): public_key(ref) for ref in (NORTH, SOUTH)
    }
    frozen = SiloAgent.model_validate(harness.agent(NORTH)).spec.job.spec
    assert config.job.spec == frozen


def test_the_keys_are_those_that_the_agents_know(harness: JobHarness) -> None:
    entries = {name: base64.b64decode(text) for name, text in the(harness, SECRET)["data"].items()}
    trust = harness.agent(NORTH)["spec"]["trust"]
    key = SigningKey.from_pem(entries["task-key.pem"], "task key")
    assert key.verify_key.to_text() == trust["taskKey"]
    certificate = x509.load_pem_x509_certificate(entries["tls.crt"])
    authority = x509.load_pem_x509_certificate(trust["caCertificate"].encode())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [
        "digits-aggregator.federation.svc",
        "digits-aggregator.federation.svc.cluster.local",
        trust["address"],
    ]


def test_a_certificate_is_for_the_host_of_the_job_s_own_address_too() -> None:
    harness = JobHarness(manifest(aggregator={"url": "https://federation.example:8443"})).start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    text = base64.b64decode(the(harness, SECRET)["data"]["tls.crt"])
    certificate = x509.load_pem_x509_certificate(text)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "federation.example" in [name.value for name in names]
    assert "from" not in the(harness, NETWORK_POLICY)["spec"]["ingress"][0]


def test_nobody_owns_the_volume(harness: JobHarness) -> None:
    assert "ownerReferences" not in the(harness, CLAIM)["metadata"]


def test_the_pod_is_under_the_restricted_level(harness: JobHarness) -> None:
    """The restricted level is what https://kubernetes.io/docs/concepts/security/pod-security-standards/ says."""
    pod = the(harness, JOB)["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert satisfies(
        pod["securityContext"], {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    )
    (container,) = pod["containers"]
    assert satisfies(
        container["securityContext"],
        {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    )
    sources = {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]}
    assert sources == {"configMap", "secret", "persistentVolumeClaim", "emptyDir"}
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/fedsilo", "/tmp"}


def test_only_the_aggregator_has_a_token(harness: JobHarness) -> None:
    pod = the(harness, JOB)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True
    assert pod["serviceAccountName"] == "digits-aggregator"


def test_the_aggregator_reaches_the_ports_that_the_operator_was_given() -> None:
    harness = JobHarness()
    harness.settings = replace(SETTINGS, api_server_ports=(16443,))
    harness.settle()
    assert the(harness, NETWORK_POLICY)["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 16443}]}]


def test_the_aggregators_template_reaches_its_job_and_pod_and_changes_nothing_else() -> None:
    zone = {"key": "zone", "operator": "Exists"}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [zone]}]
            }
        }
    }
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    template: dict[str, Any] = {
        "metadata": {
            "labels": {"kueue.x-k8s.io/queue-name": "team"},
            "annotations": {"example.com/cost": "1"},
        },
        "priorityClassName": "research",
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "cpu", "operator": "Exists"}],
        "affinity": affinity,
        "topologySpreadConstraints": [spread],
    }
    before, after = (_aggregators_job(AGGREGATOR | more) for more in ({}, {"podTemplate": template}))
    for where, was in (
        (after["metadata"], before["metadata"]),
        (after["spec"]["template"]["metadata"], before["spec"]["template"]["metadata"]),
    ):
        assert where["labels"] == was["labels"] | template["metadata"]["labels"]
        assert where["annotations"] == template["metadata"]["annotations"]
    added = {name: content for name, content in template.items() if name != "metadata"}
    assert after["spec"]["template"]["spec"] == before["spec"]["template"]["spec"] | added


@pytest.mark.parametrize("named", [None, "research"])
def test_the_operators_class_is_for_an_aggregator_whose_job_names_none(named: str | None) -> None:
    harness = JobHarness(manifest(aggregator={"podTemplate": {"priorityClassName": named}} if named else {}))
    harness.settings = replace(SETTINGS, priority_class="fedsilo-jobs")
    harness.start_job().run(NORTH, SOUTH)
    harness.settle()
    assert the(harness, JOB)["spec"]["template"]["spec"]["priorityClassName"] == (named or "fedsilo-jobs")


def _aggregators_job(section: dict[str, Any]) -> Object:
    harness = JobHarness(manifest(aggregator=section)).start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    return the(harness, JOB)
