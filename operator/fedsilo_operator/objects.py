"""Kubernetes objects as plain data: kinds, references, labels, and whether an observed one satisfies a wanted one.

The operator handles raw JSON. Typed models would refuse what a newer API server adds, and cost time on every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from fedsilo.api.observed import Object, uid_of

MANAGER = "fedsilo-operator"
"""Field manager of everything that the operator applies, and the value of its label on children."""

JOB_UID = "fedsilo.io/job-uid"
JOB_NAME = "fedsilo.io/job-name"
JOB_NAMESPACE = "fedsilo.io/job-namespace"
SILO = "fedsilo.io/silo"
AGENT = "fedsilo.io/silo-agent"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
FINALIZER = "fedsilo.io/silo-agents"
"""On a job as long as it has SiloAgents: no owner reference crosses namespaces."""


@dataclass(frozen=True)
class Kind:
    """A resource of the API.

    :param api: `v1` or `group/version`.
    :param name: the kind, as in manifests.
    :param plural: the resource, as in URLs.
    """

    api: str
    name: str
    plural: str

    @override
    def __str__(self) -> str:
        return self.name


Child = tuple[Kind, str]
"""Kind and name of an object in its owner's namespace."""

FEDERATED_JOB = Kind("fedsilo.io/v1alpha1", "FederatedJob", "federatedjobs")
SILO_KIND = Kind("fedsilo.io/v1alpha1", "Silo", "silos")
SILO_AGENT = Kind("fedsilo.io/v1alpha1", "SiloAgent", "siloagents")
JOB = Kind("batch/v1", "Job", "jobs")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
SECRET = Kind("v1", "Secret", "secrets")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
EVENT = Kind("v1", "Event", "events")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NODE = Kind("v1", "Node", "nodes")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
TOKEN_REVIEW = Kind("authentication.k8s.io/v1", "TokenReview", "tokenreviews")
SUBJECT_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")

KINDS = {
    (kind.api, kind.name): kind
    for kind in (
        FEDERATED_JOB,
        SILO_KIND,
        SILO_AGENT,
        JOB,
        POD,
        SERVICE,
        SECRET,
        CONFIG_MAP,
        CLAIM,
        SERVICE_ACCOUNT,
        EVENT,
        ROLE,
        ROLE_BINDING,
        NETWORK_POLICY,
        DISRUPTION_BUDGET,
        NODE,
        LEASE,
        TOKEN_REVIEW,
        SUBJECT_ACCESS_REVIEW,
    )
}


@dataclass(frozen=True, order=True)
class Ref:
    """A namespaced object by name."""

    namespace: str
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def kind_of(obj: Object) -> Kind:
    """The kind that the object names.

    :raises KeyError: when it is none that the operator handles.
    """
    return KINDS[obj["apiVersion"], obj["kind"]]


def ref_of(obj: Object) -> Ref:
    """Namespace and name of an object."""
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def labels_of(obj: Object) -> Mapping[str, str]:
    """Labels of an object, empty where it has none."""
    return obj["metadata"].get("labels") or {}


def is_deleted(obj: Object) -> bool:
    """Whether the object is on its way out."""
    return obj["metadata"].get("deletionTimestamp") is not None


def owns(owner: Object, child: Object) -> bool:
    """Whether this very object controls the child, by its owner reference; labels can be set by anybody."""
    return controller_uid(child) == uid_of(owner)


def controller_uid(child: Object) -> str | None:
    """The uid of the object that controls the child; None where none does."""
    references = child["metadata"].get("ownerReferences") or ()
    return next((str(reference["uid"]) for reference in references if reference.get("controller")), None)


def is_namesakes(owner: Object, child: Object) -> bool:
    """Whether an earlier object of the owner's kind and name, which is gone, controls the child."""
    references = child["metadata"].get("ownerReferences") or ()
    who = owner["kind"], owner["metadata"]["name"]
    return not owns(owner, child) and any(
        (reference.get("kind"), reference.get("name")) == who and reference.get("controller")
        for reference in references
    )


def suspend_managers(job: Object) -> list[str]:
    """Field managers that own `spec.suspend` of a Job."""
    entries = job["metadata"].get("managedFields") or ()
    owning = [
        entry for entry in entries if "f:suspend" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return sorted({str(entry.get("manager") or "unknown") for entry in owning})


def silo_of(agent: Object) -> Ref:
    """The silo that a SiloAgent is for."""
    silo = agent["spec"]["silo"]
    return Ref(silo.get("namespace", "default"), silo["name"])


def satisfies(observed: Any, wanted: Any) -> bool:
    """Whether an observed object already is what is wanted.

    The API server adds defaults and other writers add fields, so more may be there, never less. Lists must have the
    same length, except lists of maps with a `type` or a `name`, which server-side apply merges by that key.
    """
    if isinstance(wanted, Mapping):
        return isinstance(observed, Mapping) and all(
            key in observed and satisfies(observed[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(observed, list | tuple) and _lists_satisfy(observed, wanted)
    return bool(observed == wanted)


def _lists_satisfy(observed: list[Any] | tuple[Any, ...], wanted: list[Any] | tuple[Any, ...]) -> bool:
    for key in ("type", "name"):
        if wanted and all(isinstance(item, Mapping) and key in item for item in (*observed, *wanted)):
            by_key = {item[key]: item for item in observed}
            return all(satisfies(by_key.get(item[key]), item) for item in wanted)
    return len(observed) == len(wanted) and all(map(satisfies, observed, wanted))
