"""What a container gets of a node, in amounts that an API server takes (Kubernetes: "Resource Management for Pods and
Containers", "Extended Resources").

A pod is made long after its job was written: an amount that no pod may have is refused where a person wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from fedsilo.api.common import Fields, Label, Quantity, invalid_value, invalid_values
from fedsilo.api.faults import ABSENT_VALUE

ResourceKey = Annotated[str, StringConstraints(max_length=317)]
Amounts = Annotated[dict[ResourceKey, Quantity], Field(max_length=32)]
Section = Literal["requests", "limits"]

POD_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources without a domain that a container may have, beside pages of a size."""

BYTE_RESOURCES: Final = ("memory", "ephemeral-storage")

KNOWN_RESOURCES: Final = (
    f"use one of {', '.join(POD_RESOURCES)}, or write a device with its domain, such as nvidia.com/gpu"
)
"""Remedy for any other name."""

PARTS_OF_A_UNIT: Final = "m$|[.][0-9]+$"
"""How an amount ends that is not of whole units."""

PARTS_OF_A_BYTE: Final = ("is no whole number of bytes", "write a suffix of bytes, such as M, Mi or Gi")
"""Problem and remedy of such an amount of bytes."""

HUGE_PAGES: Final = "hugepages-"
"""What the name of a resource of huge pages begins with; their size follows."""


def is_device(name: str) -> bool:
    """Whether a resource is of a device plugin: its name has a domain."""
    return "/" in name


def is_split(amount: Quantity) -> bool:
    """Whether an amount counts parts of a unit: `500m` and `1.5`, where bytes are meant as `500M` and `1.5Gi`."""
    return re.search(PARTS_OF_A_UNIT, amount) is not None


def _resource_errors(resources: Mapping[Section, Mapping[str, Quantity]]) -> Iterator[PydanticCustomError]:
    """Every amount that no pod may have."""
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for section, amounts in resources.items():
        for name, amount in amounts.items():
            if (wrong := _amount_problem(name, amount)) is not None:
                yield invalid_value(*wrong, section, name, value=str(amount))
    for name, amount in requests.items():
        if _amount_problem(name, amount) is not None:
            continue  # what its limit should be follows from a right amount
        if (is_device(name) or name.startswith(HUGE_PAGES)) and name not in limits:
            problem, remedy = "is missing, which its request needs", f"write {amount} here too"
            yield invalid_value(problem, remedy, "limits", name, value=ABSENT_VALUE)
        elif name in limits and (wrong := _request_problem(name, amount, limits[name])) is not None:
            yield invalid_value(*wrong, "requests", name, value=str(amount))


def _amount_problem(name: str, amount: Quantity) -> tuple[str, str] | None:
    """Why a container cannot have so much of a resource, and the remedy."""
    if not is_device(name) and name not in POD_RESOURCES and not name.startswith(HUGE_PAGES):
        return "is no resource of a container", KNOWN_RESOURCES
    if is_device(name) and not amount.isdecimal():
        return "is no whole number of devices", "write a number without a suffix, such as 1"
    return PARTS_OF_A_BYTE if name in BYTE_RESOURCES and is_split(amount) else None


def _request_problem(name: str, amount: Quantity, limit: Quantity) -> tuple[str, str] | None:
    if (is_device(name) or name.startswith(HUGE_PAGES)) and amount.exact_value != limit.exact_value:
        return f"is not the limit, {limit}", "write one amount in both, or the limit alone"
    if amount.exact_value > limit.exact_value:
        return f"is more than the limit, {limit}", "lower the request, or raise the limit"
    return None


def _possible_resources(
    resources: dict[Section, dict[str, Quantity]],
) -> dict[Section, dict[str, Quantity]]:
    if found := list(_resource_errors(resources)):
        raise invalid_values(found)
    return resources


Resources = Annotated[dict[Section, Amounts], Field(max_length=2), AfterValidator(_possible_resources)]
"""A container's resources as in core/v1."""


class StorageSpec(Fields):
    """A volume that outlives the pods."""

    size: Quantity = Field(default=Quantity("10Gi"), description="Size of the claim.")
    storage_class_name: Label | None = Field(
        default=None, description="StorageClass of the claim; the cluster's default when null."
    )

    @field_validator("size")
    @classmethod
    def _of_some_bytes(cls, size: Quantity) -> Quantity:
        if size.exact_value == 0:
            raise invalid_value("is no storage", "write a size above zero, such as 10Gi")
        if is_split(size):
            raise invalid_value(*PARTS_OF_A_BYTE)
        return size
