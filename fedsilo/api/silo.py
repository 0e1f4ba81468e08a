"""The `Silo` resource holds what an institution offers, and its policy.

It lives in the institution's own namespace, and the guard reads it from the institution's own cluster only.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from fedsilo.api.common import (
    API_VERSION,
    Fields,
    Flag,
    Image,
    Integer,
    Label,
    Labels,
    Metadata,
    PublicKey,
    SecretName,
    Sha256,
    check_once,
    invalid_value,
)
from fedsilo.api.datasets import DatasetSpec, check_unique_names
from fedsilo.api.notations import Time
from fedsilo.api.placement import Toleration
from fedsilo.api.pod_template import PodTemplate
from fedsilo.api.resources import Resources, StorageSpec
from fedsilo.api.silo_policy import SiloPolicy
from fedsilo.api.silo_status import SiloStatus


class SiloAgentTemplate(Fields):
    """How the silo's agent runs on its cluster."""

    resources: Resources = Field(default_factory=dict, description="Resources of the trainer, GPUs included.")
    nproc_per_node: Integer | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Processes that share every batch of a training; when null one for each GPU in the limits of "
        "resources, and one on a CPU.",
    )
    node_selector: Labels = Field(default_factory=dict, description="Labels of the nodes to run on.")
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=64, description="Taints to tolerate.")
    runtime_class_name: Label | None = Field(
        default=None, description="RuntimeClass of the pods, such as a sandbox."
    )
    storage: StorageSpec = Field(
        default=StorageSpec(), description="The volume of tasks, private state and the audit log."
    )
    guard_image: Image | None = Field(
        default=None, description="Image of the guard; the operator's own when absent, never one of the job."
    )
    image_pull_secrets: tuple[SecretName, ...] | None = Field(
        default=None,
        max_length=10,
        description="Secrets of the silo's namespace with which the images of both pods are pulled; none when null.",
    )
    guard_resources: Resources | None = Field(
        default=None,
        description="Resources of the guard; it requests 100m of CPU and 128Mi of memory, or 256Mi where it composes "
        "mechanisms of differential privacy, unless something else is written.",
    )
    pod_template: PodTemplate | None = Field(
        default=None,
        description="What the platform asks of the pods of guard and trainer. The guard follows its trainer, so that "
        "affinity and topologySpreadConstraints are those of the trainer.",
    )

    @model_validator(mode="after")
    def _one_node_selector(self) -> Self:
        given = (self.pod_template and self.pod_template.node_selector) or {}
        for label, value in given.items():
            if self.node_selector.get(label, value) != value:
                problem = f"is {self.node_selector[label]} in nodeSelector"
                raise invalid_value(problem, "remove one", "podTemplate", "nodeSelector", label, value=value)
        return self

    @property
    def pods(self) -> PodTemplate:
        """The template of guard and trainer, with the node selector and the tolerations that stand beside it."""
        given = self.pod_template or PodTemplate()
        selector = self.node_selector | (given.node_selector or {})
        tolerations = (*self.tolerations, *(given.tolerations or ()))
        return given.model_copy(update={"node_selector": selector, "tolerations": tolerations})

    @model_validator(mode="after")
    def _pull_secrets_once(self) -> Self:
        check_once("imagePullSecrets", self.image_pull_secrets)
        return self

    @property
    def gpus(self) -> int:
        """GPUs that the trainer gets: extended resources such as `nvidia.com/gpu`, which have whole amounts."""
        limits = self.resources.get("limits", {})
        return sum(amount.value for name, amount in limits.items() if name.endswith("/gpu"))


class Invitation(Fields):
    """What lets an institution enrol, once."""

    token_digest: Sha256 = Field(description="SHA-256 of the token that the institution was given.")
    expires: Time = Field(description="When the token ends, in UTC.")


class RemoteSpec(Fields):
    """An institution outside of the cluster, which reaches the hub's gateway and is reached by nobody."""

    invitation: Invitation | None = Field(
        default=None, description="Until when a token may be used; `kubectl fedsilo invite` writes it."
    )
    public_key: PublicKey | None = Field(
        default=None,
        description="The institution's key, once its fingerprint was compared; `kubectl fedsilo accept` writes it.",
    )
    revoked: Flag = Field(
        default=False, description="Every further request is refused; `kubectl fedsilo revoke` writes it."
    )


class SiloSpec(Fields):
    """What the institution offers, and to whom."""

    datasets: tuple[DatasetSpec, ...] = Field(
        default=(), max_length=100, description="Datasets of the silo, at least one; names are unique."
    )
    remote: RemoteSpec | None = Field(
        default=None,
        description="The institution is outside of this cluster: datasets, policy and agent template are in its own "
        "Silo, and those here have no effect.",
    )
    agent: SiloAgentTemplate = Field(
        default=SiloAgentTemplate(), description="How the agent runs on a cluster."
    )
    policy: SiloPolicy = Field(default=SiloPolicy(), description="What the institution permits.")

    @model_validator(mode="after")
    def _datasets_of_its_own(self) -> Self:
        check_unique_names(self.datasets)
        if self.remote is None and not self.datasets:
            remedy = (
                "list the datasets of the silo, or write remote for an institution outside of the cluster"
            )
            raise invalid_value("is empty", remedy, "datasets", value=[])
        if self.remote is not None and self.datasets:
            raise invalid_value("is the institution's to list", "remove it, or remove remote", "datasets")
        return self

    @model_validator(mode="after")
    def _budgets_of_datasets(self) -> Self:
        names = [dataset.name for dataset in self.datasets]
        budgets = self.policy.privacy_budget or ()
        for place, budget in enumerate(budgets):
            where = ("policy", "privacyBudget", place, "dataset")
            if budget.dataset not in names:
                raise invalid_value(
                    "is not among spec.datasets", "name one of them", *where, value=budget.dataset
                )
            if budget.dataset in [other.dataset for other in budgets[:place]]:
                raise invalid_value("is named twice", "remove one", *where, value=budget.dataset)
        return self


class Silo(Fields):
    """One institution that takes part."""

    api_version: Literal["fedsilo.io/v1alpha1"] = Field(default=API_VERSION, description="Group and version.")
    kind: Literal["Silo"] = Field(default="Silo", description="Kind of the object.")
    metadata: Metadata = Field(description="Names and labels; the name is the silo's in every job.")
    spec: SiloSpec = Field(description="What the institution offers, and to whom.")
    status: SiloStatus = Field(default=SiloStatus(), description="What the silo controller found.")

    def dataset(self, name: str) -> DatasetSpec | None:
        """The dataset of that name, if the silo has one."""
        return next((dataset for dataset in self.spec.datasets if dataset.name == name), None)

    @override
    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"
