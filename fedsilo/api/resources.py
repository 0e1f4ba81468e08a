"""What a container gets of a node, in amounts that an API server takes (Kubernetes: "Resource Management for Pods and
Containers", "Extended Resources").

A pod is made long after its job was written: an amount that no pod may have, or with which none can start, is refused
where a person wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from fedsilo.api.common import Fields, Label, invalid_value, invalid_values
from fedsilo.api.faults import ABSENT_VALUE
from fedsilo.api.notations import Quantity
from fedsilo.api.patterns import LABEL_KEY, QUANTITY

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

QUOTA_PREFIX: Final = "requests."
"""What the name of a device cannot begin with: quotas put it before the names of devices."""

LEAST_LIMITS: Final = {"cpu": "1m", "memory": "32Mi", "ephemeral-storage": "1Mi"}
"""Limits below which no container of fedsilo starts or stays: Python and what a program imports first take 60 to 80 MiB
of memory, and its first lines of log some kilobytes. A limit of zero is none for some runtimes and kills for others."""


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
    for name, least in LEAST_LIMITS.items():
        if name in limits and _amount_problem(name, limits[name]) is None and _is_less(limits[name], least):
            problem, remedy = (
                "is too little for a container to start",
                f"use {least} or more, or leave it out",
            )
            yield invalid_value(problem, remedy, "limits", name, value=str(limits[name]))
    pages = [
        (section, name) for section, held in resources.items() for name in held if name.startswith(HUGE_PAGES)
    ]
    if pages and not {"cpu", "memory"} & {*requests, *limits}:
        problem, remedy = "needs an amount of cpu or memory beside it", "add one"
        yield invalid_value(problem, remedy, *pages[0], value=str(resources[pages[0][0]][pages[0][1]]))
    for name, amount in requests.items():
        if _amount_problem(name, amount) is not None:
            continue  # what its limit should be follows from a right amount
        if (is_device(name) or name.startswith(HUGE_PAGES)) and name not in limits:
            problem, remedy = "is missing, which its request needs", f"write {amount} here too"
            yield invalid_value(problem, remedy, "limits", name, value=ABSENT_VALUE)
        elif name in limits and (wrong := _request_problem(name, amount, limits[name])) is not None:
            yield invalid_value(*wrong, "requests", name, value=str(amount))


def _is_less(amount: Quantity, least: str) -> bool:
    return amount.exact_value < Quantity(least).exact_value


def _amount_problem(name: str, amount: Quantity) -> tuple[str, str] | None:
    """Why a container cannot have so much of a resource, and the remedy."""
    if not is_device(name) and name not in POD_RESOURCES and not name.startswith(HUGE_PAGES):
        return "is no resource of a container", KNOWN_RESOURCES
    if is_device(name) and (not re.fullmatch(LABEL_KEY, name) or name.startswith(QUOTA_PREFIX)):
        return "is no name of a device", KNOWN_RESOURCES
    if name.startswith(HUGE_PAGES):
        return _huge_pages_problem(name.removeprefix(HUGE_PAGES), amount)
    if is_device(name) and not amount.isdecimal():
        return "is no whole number of devices", "write a number without a suffix, such as 1"
    return PARTS_OF_A_BYTE if name in BYTE_RESOURCES and is_split(amount) else None


def _huge_pages_problem(size: str, amount: Quantity) -> tuple[str, str] | None:
    page = Quantity(size).value if re.fullmatch(QUANTITY, size) else 0
    if not page:
        return "is no size of a page", "write one that the nodes have, such as hugepages-2Mi"
    if amount.exact_value % page or not amount.exact_value:
        return f"is no whole number of pages of {size}", f"use {size} or a multiple of it"
    return None


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
