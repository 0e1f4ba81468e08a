"""The children of a job's aggregator, as data."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, uid_of
from fedsilo.api.output import MlflowSpec
from fedsilo.api.pod_template import PodTemplate
from fedsilo_operator.keys import JobKeys
from fedsilo_operator.names import aggregator_name, claim_name, job_labels
from fedsilo_operator.objects import (
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    FEDERATED_JOB,
    JOB_UID,
    NETWORK_POLICY,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Ref,
    ref_of,
)
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.data import dataset_mounts, initial_weights_mount
from fedsilo_operator.workloads.pod import (
    CONFIG,
    DATA,
    LOG_FORMAT,
    METRICS,
    METRICS_PORT,
    PORT,
    SECRETS,
    VOLUME,
    Container,
    Mount,
    batch_job,
    metadata,
    pod_spec,
    references,
    room_for_data,
)
from fedsilo_operator.workloads.template import merged_metadata, node_fields, placement_fields, quantities

AGGREGATOR = "aggregator"
CONFIG_FILE, TRUST_FILE = "config.json", "trust.json"

MLFLOW_CREDENTIALS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""Entries of the Secret that a job names for its MLflow server."""

PERMANENT_EXIT_CODES = (2, 3, 4, 5, 6, 7)
"""Exit codes after which a retry cannot help, see `fedsilo.errors`."""


def url_of(job: FederatedJob) -> str:
    """Where silos reach the aggregator."""
    ref = Ref(job.metadata.namespace, job.metadata.name)
    return job.spec.aggregator.url or f"https://{aggregator_name(ref)}.{ref.namespace}.svc:{PORT}"


def server_names(job: FederatedJob, address: str | None) -> list[str]:
    """Names and addresses that the aggregator's certificate is for.

    :param address: the Service's cluster IP, once it is known.
    """
    service = (
        f"{aggregator_name(Ref(job.metadata.namespace, job.metadata.name))}.{job.metadata.namespace}.svc"
    )
    names = [service, f"{service}.cluster.local", address, urlsplit(url_of(job)).hostname or ""]
    return list(dict.fromkeys(filter(None, names)))


def service(job: Object, address: str | None) -> Object:
    """The Service at which guards reach the job's aggregator.

    :param address: the cluster IP that agents were given; None lets the API server choose.
    """
    spec: dict[str, Any] = {
        "selector": _pod_labels(job),
        "ports": [{"name": "https", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
    }
    if address is not None:
        spec["clusterIP"] = address
    return _child(SERVICE, job, spec=spec)


def account(job: Object) -> Object:
    """The account under which the aggregator reports."""
    return _child(SERVICE_ACCOUNT, job, automountServiceAccountToken=False)


def role(job: Object) -> Object:
    """The right to read this one job and to write its status; an admission policy limits the fields."""
    group, name = FEDERATED_JOB.api.partition("/")[0], job["metadata"]["name"]
    rules = [
        {"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs}
        for resource, verbs in (
            (FEDERATED_JOB.plural, ["get"]),
            (f"{FEDERATED_JOB.plural}/status", ["get", "patch"]),
        )
    ]
    return _child(ROLE, job, rules=rules)


def role_binding(job: Object) -> Object:
    """Gives the role to the account."""
    ref = _ref(job)
    return _child(
        ROLE_BINDING,
        job,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": ROLE.name, "name": ref.name},
        subjects=[{"kind": SERVICE_ACCOUNT.name, "name": ref.name, "namespace": ref.namespace}],
    )


def network_policy(
    job: Object, settings: Settings, *, from_anywhere: bool, mlflow: MlflowSpec | None = None
) -> Object:
    """The aggregator's NetworkPolicy, which lets in guards of this job, the gateway, and who may scrape metrics.

    What is let out may reach the API server, known by its ports only, and so the job's MLflow server.

    :param from_anywhere: guards of other clusters come through a gateway, which has no label of ours.
    """
    incoming: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": PORT}]}
    if not from_anywhere:
        guards = {"matchLabels": {COMPONENT: "guard", JOB_UID: uid_of(job)}}
        incoming["from"] = [{"namespaceSelector": {}, "podSelector": guards}, *_gateway(settings)]
    watching = []
    if settings.metrics_from is not None:
        source = {"namespaceSelector": {"matchLabels": dict(settings.metrics_from)}}
        watching = [{"from": [source], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}]
    spec = {
        "podSelector": {"matchLabels": _pod_labels(job)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [incoming, *watching],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": port} for port in settings.api_server_ports]},
            *_to_mlflow(mlflow),
        ],
    }
    return _child(NETWORK_POLICY, job, spec=spec)


def _to_mlflow(mlflow: MlflowSpec | None) -> list[Object]:
    """DNS, and the port of the server that the job names: a policy knows no host by its name."""
    if mlflow is None:
        return []
    url = urlsplit(mlflow.tracking_uri)
    port = url.port or (443 if url.scheme == "https" else 80)
    names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return [{"ports": names}, {"ports": [{"protocol": "TCP", "port": port}]}]


def _mlflow_credentials(parsed: FederatedJob) -> dict[str, str]:
    """Variable -> the Secret whose entry it is; of no other entry, whatever Secret the job names."""
    mlflow = parsed.spec.mlflow
    if mlflow is None or mlflow.credentials_secret is None:
        return {}
    return dict.fromkeys(MLFLOW_CREDENTIALS, mlflow.credentials_secret)


def _gateway(settings: Settings) -> list[Object]:
    """The peer by which guards of institutions outside of the cluster come, where there is one."""
    if not settings.gateway:
        return []
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": settings.namespace}}
    return [{"namespaceSelector": namespace, "podSelector": {"matchLabels": {COMPONENT: "gateway"}}}]


def config(
    job: Object, parsed: FederatedJob, public_keys: Mapping[Ref, str], trust: Mapping[str, str]
) -> Object:
    """What the aggregator is started with: the frozen job and its silos.

    :param public_keys: those of the silos that take part, in the order of folding.
    :param trust: what all agents are given to know the aggregator by; the operator reads it back.
    """
    frozen = parsed.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"status"})
    frozen["metadata"] = {name: frozen["metadata"][name] for name in ("name", "namespace", "uid")}
    content = {
        "job": frozen,
        "silos": [
            {"namespace": silo.namespace, "name": silo.name, "publicKey": key}
            for silo, key in public_keys.items()
        ],
    }
    data = {CONFIG_FILE: json.dumps(content, sort_keys=True), TRUST_FILE: json.dumps(trust, sort_keys=True)}
    return _child(CONFIG_MAP, job, immutable=True, data=data)


def public_keys_in(config: Object) -> dict[Ref, str]:
    """The public keys of the silos that such a ConfigMap names, in its order."""
    content = json.loads(config["data"][CONFIG_FILE])
    return {Ref(silo["namespace"], silo["name"]): silo["publicKey"] for silo in content["silos"]}


def job_text_in(config: Object) -> str:
    """The frozen job that such a ConfigMap records, as JSON."""
    return json.dumps(json.loads(config["data"][CONFIG_FILE])["job"], sort_keys=True)


def trust_in(config: Object) -> dict[str, str] | None:
    """What the agents were given, as such a ConfigMap records it; None where an earlier version made it."""
    text = config["data"].get(TRUST_FILE)
    return None if text is None else dict(json.loads(text))


def secret(job: Object, keys: JobKeys) -> Object:
    """The aggregator's private keys.

    The operator cannot read it, so its name has the uid: one that an earlier job of the same name has left is
    never taken for this job's.
    """
    entries = {"task-key.pem": keys.task_key, "tls.crt": keys.certificate, "tls.key": keys.key}
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": metadata(_secret_ref(job), _labels(job), job),
        "type": "Opaque",
        "data": {name: base64.b64encode(content).decode() for name, content in entries.items()},
    }


def claim(job: Object, parsed: FederatedJob) -> Object:
    """The volume of rounds and model; it has no owner, so that it outlives the job."""
    storage = parsed.spec.aggregator.storage
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size)}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": CLAIM.api,
        "kind": CLAIM.name,
        "metadata": metadata(claim_ref(job), _labels(job), None),
        "spec": spec,
    }


def claim_ref(job: Object) -> Ref:
    """Where the model is, and stays."""
    ref = ref_of(job)
    return Ref(ref.namespace, claim_name(ref, uid_of(job)))


def workload(job: Object, parsed: FederatedJob, settings: Settings) -> Object:
    """The Job that runs the aggregator."""
    spec = parsed.spec.aggregator
    claim = claim_ref(job).name
    mounts = [
        Mount("config", {"configMap": {"name": _ref(job).name}}, CONFIG),
        Mount("keys", {"secret": {"secretName": _secret_ref(job).name, "defaultMode": 0o440}}, SECRETS),
        Mount("volume", {"persistentVolumeClaim": {"claimName": claim}}, VOLUME, read_only=False),
        *dataset_mounts(parsed.spec.aggregator.datasets),
        *initial_weights_mount(parsed.spec.model.initial_weights),
    ]
    arguments = [
        *("--config", f"{CONFIG}/{CONFIG_FILE}"),
        *("--dir", VOLUME),
        *("--data-root", DATA),
        *("--task-key", f"{SECRETS}/task-key.pem"),
        *("--tls-cert", f"{SECRETS}/tls.crt"),
        *("--tls-key", f"{SECRETS}/tls.key"),
        *("--report", "--claim", claim),
        *LOG_FORMAT,
    ]
    ports = {"https": PORT}
    if settings.metrics_from is not None:
        arguments += ["--metrics-port", str(METRICS_PORT)]
        ports |= METRICS
    resources = quantities(spec.resources)
    container = Container(
        AGGREGATOR,
        spec.image or settings.aggregator_image,
        arguments,
        mounts,
        resources,
        ports,
        environment=room_for_data(resources),
        secret_variables=_mlflow_credentials(parsed),
    )
    secrets = references(spec.image_pull_secrets or ())
    template = spec.pod_template or PodTemplate()
    extra = node_fields(template, settings.priority_class) | placement_fields(template)
    if secrets:
        extra["imagePullSecrets"] = secrets
    labels, annotations = merged_metadata(template.metadata)
    pod = pod_spec(
        container,
        user=settings.user,
        serviceAccountName=_ref(job).name,
        automountServiceAccountToken=True,
        **extra,
    )
    return batch_job(
        _ref(job),
        {**labels, **_labels(job)},
        pod,
        owner=job,
        backoff_limit=parsed.spec.backoff_limit,
        permanent_exit_codes=PERMANENT_EXIT_CODES,
        annotations=annotations,
    )


def _child(kind: Kind, job: Object, **content: Any) -> Object:
    return {
        "apiVersion": kind.api,
        "kind": kind.name,
        "metadata": metadata(_ref(job), _labels(job), job),
        **content,
    }


def _ref(job: Object) -> Ref:
    ref = ref_of(job)
    return Ref(ref.namespace, aggregator_name(ref))


def _secret_ref(job: Object) -> Ref:
    return claim_ref(job)


def _labels(job: Object) -> dict[str, str]:
    return job_labels(ref_of(job), uid_of(job), AGGREGATOR)


def _pod_labels(job: Object) -> dict[str, str]:
    return {COMPONENT: AGGREGATOR, JOB_UID: uid_of(job)}
