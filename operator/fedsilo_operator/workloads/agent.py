"""The children of one SiloAgent: configuration, volume, network policies, trainer and guard.

The trainer sees data and has no network and no key; the guard has key and network and sees no data. Each mounts the
directories of their volume that `fedsilo.silo.volume` gives it, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedsilo.api.agent import SiloAgent
from fedsilo.api.observed import Object
from fedsilo.api.silo import Silo, SiloAgentTemplate
from fedsilo.silo.configuration import configuration, current_policy
from fedsilo.silo.volume import Volume
from fedsilo_operator.names import LEDGERS, SIGNING_KEY, agent_labels, ledgers_labels, ledgers_name
from fedsilo_operator.objects import AGENT, COMPONENT, JOB_UID, Ref
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.workloads.data import dataset_mounts
from fedsilo_operator.workloads.pod import (
    CONFIG,
    CURRENT_POLICY_DIR,
    DATA,
    LEDGERS_PATH,
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
from fedsilo_operator.workloads.template import (
    guard_resources,
    merged_metadata,
    node_fields,
    placement_fields,
    quantities,
    without_devices,
)
from fedsilo_operator.workloads.way_out import authorities, way_out

TRAINER, GUARD, AGENT_COMPONENT = "trainer", "guard", "silo-agent"
CHILD_SELECTOR = f"{COMPONENT} in ({AGENT_COMPONENT},{GUARD},{TRAINER},{LEDGERS})"
"""Selects what agents have: the two controllers that follow their pods share one watch."""


POLICY = "policy"
"""The ConfigMap of the policy as it is now."""

ISOLATION = "isolation"
"""Init container that checks the trainer's network before the trainer begins."""

PERMANENT_EXIT_CODES = (2, 3, 5, 6, 7)
"""Exit codes after which a retry cannot help, see `fedsilo.errors`; a guard or trainer never ends with 4."""

LEDGERS_SIZE = "64Mi"
"""Size of the volume of a silo's ledgers: a charge takes about 400 bytes, so that it holds more than 100,000."""

LEDGER_NODE_LABEL = "fedsilo.io/ledgers"
"""Label of trainers' pods that have to run on one node, where the volume of their silo's ledgers is: the silo."""

SHARED_MEMORY_SIZE = "1Gi"
"""Size of `/dev/shm`, as NCCL's guide has it; what is written there counts as memory of the trainer."""

_LAYOUT = Volume(Path(VOLUME))


@dataclass(frozen=True)
class ParsedAgent:
    """A parsed SiloAgent and its Silo: what the children are made from.

    :param owner: the SiloAgent as observed, which owns the children.
    """

    agent: SiloAgent
    silo: Silo
    owner: Object

    @property
    def ref(self) -> Ref:
        """Namespace and name of the SiloAgent; its claim and its configuration have the same name."""
        return Ref(self.agent.metadata.namespace, self.agent.metadata.name)

    def child(self, component: str) -> Ref:
        """Job and network policy of guard or trainer; the ConfigMap of the present policy."""
        return Ref(self.ref.namespace, f"{self.ref.name}-{component}")

    @property
    def budgeted(self) -> bool:
        """Whether the institution has a privacy budget for the job's dataset."""
        dataset = self.agent.spec.job.spec.data.dataset
        return self.silo.spec.policy.budget_of(dataset) is not None

    @property
    def composes(self) -> bool:
        """Whether the guard composes mechanisms, for a budget or for what the job has its trainer do."""
        private = self.agent.spec.job.spec.privacy.differential_privacy
        return self.budgeted or (private is not None and private.noised_by_trainer)

    def labels(self, component: str) -> dict[str, str]:
        """Labels of a child."""
        job, silo = self.agent.spec.job, self.agent.spec.silo
        return agent_labels(Ref(job.namespace, job.name), job.uid, Ref(silo.namespace, silo.name), component)


def trainer_image(agent: SiloAgent, settings: SiloSettings) -> str:
    """The image that the job names, or the operator's own release."""
    return agent.spec.job.spec.agents.image or settings.trainer_image


def config_map(parsed: ParsedAgent) -> Object:
    """SiloAgent and Silo as guard and trainer read them: immutable, as long as the job runs there."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(parsed.ref, parsed.labels(AGENT_COMPONENT), parsed.owner),
        "immutable": True,
        "data": configuration(parsed.agent, parsed.silo),
    }


def policy_map(parsed: ParsedAgent) -> Object:
    """The Silo's policy as it is now, which the guard reads before anything leaves."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(parsed.child(POLICY), parsed.labels(AGENT_COMPONENT), parsed.owner),
        "data": current_policy(parsed.silo),
    }


def claim(parsed: ParsedAgent) -> Object:
    """The volume of tasks, private state and the audit log. It has no owner: the institution deletes it."""
    storage = parsed.silo.spec.agent.storage
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size)}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(parsed.ref, parsed.labels(AGENT_COMPONENT), None),
        "spec": spec,
    }


def ledgers_claim(parsed: ParsedAgent) -> Object:
    """The volume of the silo's ledgers, of all its jobs. It has no owner: it outlives every job, agent and release."""
    silo = parsed.silo.metadata.name
    made = claim(parsed)
    made["metadata"] = metadata(Ref(parsed.ref.namespace, ledgers_name(silo)), ledgers_labels(silo), None)
    made["spec"]["resources"] = {"requests": {"storage": LEDGERS_SIZE}}
    return made


def trainer_policy(parsed: ParsedAgent) -> Object:
    """A trainer's NetworkPolicy, which lets nothing in and nothing out, not even DNS."""
    return _network_policy(parsed, TRAINER, [])


def guard_policy(parsed: ParsedAgent, settings: SiloSettings) -> Object:
    """Out to the job's aggregator; one outside the cluster has no labels to select it by: there, to its port.

    Where the settings say so, only to these addresses, or to the proxy's port.
    Nothing in: the institution decides by a policy of its own who may scrape its metrics.
    """
    job, trust = parsed.agent.spec.job, parsed.agent.spec.trust
    if trust.address is not None:
        peer = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": job.namespace}},
            "podSelector": {"matchLabels": {COMPONENT: "aggregator", JOB_UID: job.uid}},
        }
        return _network_policy(parsed, GUARD, [{"to": [peer], "ports": [_port("TCP", PORT)]}])
    names = {"ports": [_port("UDP", 53), _port("TCP", 53)]}
    outside = settings.outside
    port = outside.proxy_port or urlsplit(trust.url).port or 443
    networks = [{"ipBlock": {"cidr": network}} for network in outside.networks]
    there = {"ports": [_port("TCP", port)], **({"to": networks} if networks else {})}
    return _network_policy(parsed, GUARD, [there, names])


def trainer_job(parsed: ParsedAgent, settings: SiloSettings) -> Object:
    """The job's image over the silo's data, on the silo's GPU, once its network is found closed."""
    template = parsed.silo.spec.agent
    dataset = parsed.silo.dataset(parsed.agent.spec.job.spec.data.dataset)
    resources = quantities(template.resources)
    container = Container(
        name=TRAINER,
        image=trainer_image(parsed.agent, settings),
        arguments=[*_arguments(), "--data-root", DATA],
        mounts=[
            _config(parsed),
            _directory(parsed, _LAYOUT.inbox, read_only=True),
            _directory(parsed, _LAYOUT.drop),
            _directory(parsed, _LAYOUT.state),
            *dataset_mounts([dataset] if dataset else []),
            *_shared_memory(template),
        ],
        resources=resources,
        environment=room_for_data(resources),
    )
    # A retry on the guard's node finds their volume attached; scarce GPUs may still be on another.
    beside = {"podAffinityTerm": _same_node_as(parsed, GUARD), "weight": 100}
    affinity: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": [beside]}
    labels = {}
    if parsed.budgeted:
        # The guard follows its trainer, so both run where the ledgers' volume is: scheduled by that, and beside those
        # that have it attached. No container of the trainer's pod sees it.
        labels = {LEDGER_NODE_LABEL: parsed.silo.metadata.name}
        there = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = [there]
    return _job(
        parsed,
        settings,
        TRAINER,
        container,
        labels,
        init_containers=[_isolation(parsed, settings)],
        beside=_ledgers(parsed),
        **placement_fields(template.pods, {"podAffinity": affinity}),
    )


def _shared_memory(template: SiloAgentTemplate) -> list[Mount]:
    """Where the processes of several GPUs exchange gradients if the GPUs cannot reach each other's memory.

    A runtime gives a container 64 MiB, which NCCL's buffers of a few GPUs exceed.
    """
    if template.gpus < 2:
        return []
    source = {"emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY_SIZE}}
    return [Mount("shared-memory", source, "/dev/shm", read_only=False)]


def guard_image(silo: Silo, settings: SiloSettings) -> str:
    """The image that the silo names, or the operator's own release."""
    return silo.spec.agent.guard_image or settings.guard_image


def guard_job(parsed: ParsedAgent, settings: SiloSettings) -> Object:
    """The silo's image with the silo's key, on the trainer's node: they share a volume."""
    watched = settings.metrics_from is not None
    container = Container(
        name=GUARD,
        image=guard_image(parsed.silo, settings),
        arguments=[
            *(*_arguments(), "--policy", f"{CURRENT_POLICY_DIR}/silo.json", "--key", f"{SECRETS}/key.pem"),
            *(("--ledgers", LEDGERS_PATH) if parsed.budgeted else ()),
            *(("--metrics-port", str(METRICS_PORT)) if watched else ()),
        ],
        mounts=[
            _config(parsed),
            # A directory, not a file: what is mounted as a file stays as it was.
            Mount("policy", {"configMap": {"name": parsed.child(POLICY).name}}, CURRENT_POLICY_DIR),
            _directory(parsed, _LAYOUT.inbox),
            _directory(parsed, _LAYOUT.drop),
            _directory(parsed, _LAYOUT.guard),
            _directory(parsed, _LAYOUT.audit),
            Mount("key", {"secret": {"secretName": SIGNING_KEY, "defaultMode": 0o440}}, SECRETS),
            *_ledgers(parsed),
            *authorities(settings.outside),
        ],
        resources=guard_resources(parsed.silo.spec.agent.guard_resources or {}, parsed.composes),
        ports=METRICS if watched else {},
        environment=way_out(parsed.agent.spec.trust, settings.outside),
        secrets=[settings.outside.proxy_secret] if settings.outside.proxy_secret else (),
    )
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_same_node_as(parsed, TRAINER)]}
    }
    trust = parsed.agent.spec.trust
    if trust.address is None:
        return _job(parsed, settings, GUARD, container, affinity=affinity)
    host = {"ip": trust.address, "hostnames": [urlsplit(trust.url).hostname]}
    return _job(parsed, settings, GUARD, container, affinity=affinity, hostAliases=[host])


def _ledgers(parsed: ParsedAgent) -> list[Mount]:
    """The volume of the silo's ledgers, where the guard keeps the budget of the job's dataset."""
    if not parsed.budgeted:
        return []
    source = {"persistentVolumeClaim": {"claimName": ledgers_name(parsed.silo.metadata.name)}}
    return [Mount("ledgers", source, LEDGERS_PATH, read_only=False)]


def _isolation(parsed: ParsedAgent, settings: SiloSettings) -> Container:
    """The check of the network, in the silo's own image: the job's image could report anything.

    It has the trainer's CPU, memory and storage, which are free before the trainer begins: another amount could change
    which nodes the pod fits, its quality of service, and whether a quota lets it in.
    """
    return Container(
        name=ISOLATION,
        image=guard_image(parsed.silo, settings),
        command=["fedsilo-isolation"],
        arguments=["--agent", f"{CONFIG}/agent.json", *LOG_FORMAT],
        mounts=[_config(parsed)],
        resources=without_devices(parsed.silo.spec.agent.resources),
    )


def _job(
    parsed: ParsedAgent,
    settings: SiloSettings,
    component: str,
    container: Container,
    labels: Mapping[str, str] | None = None,
    **extra: Any,
) -> Object:
    template = parsed.silo.spec.agent
    asked = parsed.agent.spec.job.spec.agents.pod_template
    given, annotations = merged_metadata(None if asked is None else asked.metadata, template.pods.metadata)
    extra |= node_fields(template.pods, settings.priority_class)
    if template.image_pull_secrets:
        extra["imagePullSecrets"] = references(template.image_pull_secrets)
    if template.runtime_class_name is not None:
        extra["runtimeClassName"] = template.runtime_class_name
    return batch_job(
        parsed.child(component),
        {**given, **parsed.labels(component), **(labels or {})},
        pod_spec(container, user=settings.user, **extra),
        owner=parsed.owner,
        backoff_limit=parsed.agent.spec.job.spec.backoff_limit,
        permanent_exit_codes=PERMANENT_EXIT_CODES,
        annotations=annotations,
    )


def _arguments() -> list[str]:
    documents = ["--agent", f"{CONFIG}/agent.json", "--silo", f"{CONFIG}/silo.json"]
    return [*documents, "--volume", VOLUME, *LOG_FORMAT]


def _config(parsed: ParsedAgent) -> Mount:
    return Mount("config", {"configMap": {"name": parsed.ref.name}}, CONFIG)


def _directory(parsed: ParsedAgent, path: Path, read_only: bool = False) -> Mount:
    source = {"persistentVolumeClaim": {"claimName": parsed.ref.name}}
    return Mount("volume", source, str(path), sub_path=path.name, read_only=read_only)


def _same_node_as(parsed: ParsedAgent, component: str) -> dict[str, Any]:
    labels = {AGENT: parsed.labels(component)[AGENT], COMPONENT: component}
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}


def _network_policy(parsed: ParsedAgent, component: str, egress: list[dict[str, Any]]) -> Object:
    labels = {AGENT: parsed.labels(component)[AGENT], COMPONENT: component}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(parsed.child(component), parsed.labels(component), parsed.owner),
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": egress,
        },
    }


def _port(protocol: str, port: int) -> dict[str, Any]:
    return {"protocol": protocol, "port": port}
