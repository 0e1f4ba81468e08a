"""On which nodes pods may run, as in core/v1.

Sources: Kubernetes, "Assigning Pods to Nodes", "Taints and Tolerations" and "Pod Topology Spread Constraints".
Lists are shorter than an API server permits, since everything in a resource is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.common import Fields, Integer, Label, LabelKey, LabelValue, invalid_value
from fedsilo.api.faults import ABSENT_VALUE

LabelValues = Annotated[tuple[LabelValue, ...], Field(max_length=32)]
Inclusion = Literal["Honor", "Ignore"]


class Toleration(Fields):
    """A taint that pods tolerate, as in core/v1."""

    key: LabelKey | None = Field(default=None, description="Key of the taint; all when absent.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="How the value is compared.")
    value: LabelValue | None = Field(default=None, description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; all when absent."
    )
    toleration_seconds: Integer | None = Field(default=None, description="How long, for NoExecute.")

    @model_validator(mode="after")
    def _as_pods_may_have_it(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise invalid_value(
                "has no meaning with operator Exists", "remove it, or use Equal", "value", value=self.value
            )
        if self.operator == "Equal" and self.key is None:
            problem, remedy = "is missing, which operator Equal needs", "add it, or use operator Exists"
            raise invalid_value(problem, remedy, "key", value=ABSENT_VALUE)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            problem, remedy = "has a meaning for effect NoExecute only", "write that effect, or remove it"
            raise invalid_value(problem, remedy, "tolerationSeconds", value=self.toleration_seconds)
        return self


def _check_values(operator: str, values: Sequence[str]) -> None:
    """Refuse values that the API server would refuse beside their operator."""
    if operator in ("Exists", "DoesNotExist") and values:
        raise invalid_value(f"has no meaning for {operator}", "remove it", "values", value=list(values))
    if operator in ("In", "NotIn") and not values:
        raise invalid_value(f"is empty, and {operator} compares with it", "list values", "values", value=[])
    if operator in ("Gt", "Lt") and not (len(values) == 1 and values[0].isdecimal()):
        problem = f"is not one whole number, which {operator} compares with"
        raise invalid_value(problem, 'write one, such as ["40000"]', "values", value=list(values))


class LabelRequirement(Fields):
    """What a label of an object must be, as in meta/v1."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How it is compared.")
    values: LabelValues = Field(default=(), description="Values, for In and NotIn.")

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        _check_values(self.operator, self.values)
        return self


class NodeRequirement(Fields):
    """What a label of a node must be, as in core/v1."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How it is compared."
    )
    values: LabelValues = Field(default=(), description="Values, for In and NotIn; a number for Gt and Lt.")

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        _check_values(self.operator, self.values)
        return self


class LabelSelector(Fields):
    """Chooses objects by label, as in meta/v1."""

    match_labels: dict[LabelKey, LabelValue] | None = Field(
        default=None, max_length=16, description="Labels that an object must have, all of them."
    )
    match_expressions: tuple[LabelRequirement, ...] | None = Field(
        default=None, max_length=16, description="Requirements, all of which hold."
    )


class NodeSelectorTerm(Fields):
    """Nodes that meet all requirements."""

    match_expressions: tuple[NodeRequirement, ...] = Field(
        min_length=1, max_length=16, description="Requirements, all of which hold."
    )


class NodeSelector(Fields):
    """Nodes of any of some terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(
        min_length=1, max_length=8, description="Terms, one of which holds."
    )


class PreferredNodeTerm(Fields):
    """Nodes that are better than others."""

    weight: Integer = Field(ge=1, le=100, description="How much it counts, beside others.")
    preference: NodeSelectorTerm = Field(description="The nodes.")


class NodeAffinity(Fields):
    """Nodes by their labels."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="Nodes to which a pod is limited."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodeTerm, ...] | None = Field(
        default=None, max_length=8, description="Nodes that are better."
    )


class PodAffinityTerm(Fields):
    """Where some pods are."""

    topology_key: LabelKey = Field(description="Label of nodes; those of one value are one place.")
    label_selector: LabelSelector | None = Field(default=None, description="The pods; none when absent.")
    namespaces: tuple[Label, ...] | None = Field(
        default=None, max_length=16, description="Their namespaces; the pod's own when absent."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None, description="Further namespaces, by label."
    )


class PreferredPodTerm(Fields):
    """Where it is better to be, or not to be."""

    weight: Integer = Field(ge=1, le=100, description="How much it counts, beside others.")
    pod_affinity_term: PodAffinityTerm = Field(description="The place.")


class PodAffinity(Fields):
    """Places by the pods that are there."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = Field(
        default=None, max_length=8, description="Places to which a pod is limited, or from which it is kept."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPodTerm, ...] | None = Field(
        default=None, max_length=8, description="Places that are better, or worse."
    )


class Affinity(Fields):
    """Which nodes are possible, and which of them are better, as in core/v1."""

    node_affinity: NodeAffinity | None = Field(default=None, description="Nodes by their labels.")
    pod_affinity: PodAffinity | None = Field(default=None, description="Together with these pods.")
    pod_anti_affinity: PodAffinity | None = Field(default=None, description="Away from these pods.")


class TopologySpreadConstraint(Fields):
    """How evenly pods are spread over places, as in core/v1."""

    max_skew: Integer = Field(ge=1, description="Most pods that a place has more than another.")
    topology_key: LabelKey = Field(description="Label of nodes; those of one value are one place.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="Whether a pod waits where the limit would be exceeded."
    )
    label_selector: LabelSelector | None = Field(default=None, description="The pods that are counted.")
    min_domains: Integer | None = Field(default=None, ge=1, description="Places that there are at least.")
    node_affinity_policy: Inclusion | None = Field(
        default=None, description="Whether only nodes count that the pod's selectors permit."
    )
    node_taints_policy: Inclusion | None = Field(
        default=None, description="Whether only nodes count whose taints the pod tolerates."
    )
