"""What a platform asks of pods: labels and annotations, a priority, and the nodes that they may run on.

What a pod may do is no part of a template. User, capabilities, volumes, tokens and service account are what the
security of a federation rests on, and the operator alone decides on them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from fedsilo.api.common import Fields, Labels, LabelValue, invalid_value, invalid_values
from fedsilo.api.patterns import RFC1123_SUBDOMAIN
from fedsilo.api.placement import Affinity, Toleration, TopologySpreadConstraint

METADATA_KEY: Final = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

OWNED_PREFIXES: Final = ("fedsilo.io/", "app.kubernetes.io/", "batch.kubernetes.io/")
"""Beginnings of keys by which operator, network policies and the Job controller know pods."""

OWNED_KEYS: Final = ("job-name", "controller-uid")
"""Keys of the Job controller without a domain."""

SECURITY_PREFIXES: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "k8s.v1.cni.cncf.io/",
    "v1.multus-cni.io/",
    "io.katacontainers.",
    "io.kubernetes.cri-o.",
)
"""Beginnings of annotations with which a runtime loosens how a pod is confined, or gives it a network to which no
NetworkPolicy applies (Kubernetes: "AppArmor"; Network Plumbing Working Group: "Multi-Network Specification")."""

OWNED_KEY_PROBLEM: Final = ("is a key of the operator's or of Kubernetes' own", "use another key")
CONFINEMENT_PROBLEM: Final = ("would change how the pod is confined", "remove it")
SYSTEM_PRIORITY: Final = "system-"
"""Beginning of the names of the PriorityClasses of a cluster's own parts."""

SYSTEM_CLASS_PROBLEM: Final = ("is for the cluster's own parts", "name a PriorityClass of the platform's")

Problem = tuple[str, str]
"""What is wrong, and the remedy."""

MetadataKey = Annotated[str, StringConstraints(max_length=317)]
AnnotationText = Annotated[str, StringConstraints(max_length=4096)]


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    return _check_keys(labels)


def _check_annotations(annotations: dict[str, str]) -> dict[str, str]:
    return _check_keys(annotations, SECURITY_PREFIXES)


def _check_keys(entries: dict[str, str], confining: tuple[str, ...] = ()) -> dict[str, str]:
    wrong = {key: CONFINEMENT_PROBLEM if key.startswith(confining) else _key_problem(key) for key in entries}
    if found := [
        invalid_value(*why, key, value=entries[key]) for key, why in wrong.items() if why is not None
    ]:
        raise invalid_values(found)
    return entries


def _key_problem(key: str) -> Problem | None:
    """Why no template can have a key, and the remedy."""
    if key.startswith(OWNED_PREFIXES) or key in OWNED_KEYS:
        return OWNED_KEY_PROBLEM
    if re.fullmatch(METADATA_KEY, key) is None:
        return "is no key of labels and annotations", "write letters, digits, '-', '_' and '.', such as team"
    return None


PodLabels = Annotated[dict[MetadataKey, LabelValue], Field(max_length=64), AfterValidator(_check_labels)]
Annotations = Annotated[
    dict[MetadataKey, AnnotationText], Field(max_length=64), AfterValidator(_check_annotations)
]


class PodMetadata(Fields):
    """Labels and annotations of pods and of the Jobs that make them, beside the operator's own."""

    labels: PodLabels | None = Field(
        default=None, description="Labels, such as those of a queue, a team or a cost centre."
    )
    annotations: Annotations | None = Field(default=None, description="Annotations.")

    @property
    def keys(self) -> list[str]:
        """The keys of labels and annotations, each once."""
        return list(dict.fromkeys((*(self.labels or ()), *(self.annotations or ()))))


class PodTemplate(Fields):
    """How pods look to the platform that they run on."""

    metadata: PodMetadata | None = Field(
        default=None, description="Labels and annotations of the pods and of their Jobs."
    )
    priority_class_name: (
        Annotated[str, StringConstraints(pattern=RFC1123_SUBDOMAIN, max_length=253)] | None
    ) = Field(default=None, description="PriorityClass; the cluster's default when null.")
    node_selector: Labels | None = Field(default=None, description="Labels of the nodes to run on.")
    tolerations: tuple[Toleration, ...] | None = Field(
        default=None, max_length=64, description="Taints to tolerate."
    )
    affinity: Affinity | None = Field(
        default=None, description="Nodes and neighbours; what the operator asks for itself holds too."
    )
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = Field(
        default=None, max_length=8, description="How evenly pods are spread over places."
    )

    @field_validator("priority_class_name")
    @classmethod
    def _of_the_platform(cls, name: str | None) -> str | None:
        if name is not None and name.startswith(SYSTEM_PRIORITY):
            raise invalid_value(*SYSTEM_CLASS_PROBLEM)
        return name


class AgentPodTemplate(Fields):
    """What a job asks for the pods of its agents; each institution permits keys in its policy.metadataKeys."""

    metadata: PodMetadata | None = Field(
        default=None,
        description="Labels and annotations of the agents' pods and of their Jobs; where a silo's own template has the "
        "same key, the silo's value counts.",
    )
