"""Amounts that an API server refuses for every pod are refused where a person wrote them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fedsilo.api.job import AggregatorSpec
from fedsilo.api.messages import faults_of
from fedsilo.api.resources import StorageSpec
from fedsilo.api.silo import SiloAgentTemplate

GPU = "nvidia.com/gpu"


def lines(model: type[Any], document: dict[str, Any]) -> list[str]:
    """What is said of each fault of a part of a document."""
    try:
        model.model_validate(document)
    except ValidationError as error:
        return [
            f"{fault.path}: {fault.problem}"
            for fault in faults_of(error, model, file="m.yaml", document="document 1")
        ]
    return []


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"requests": {GPU: 1}}, f"limits[{GPU}]: is missing, which its request needs"),
        ({"limits": {GPU: "0.5"}}, f"limits[{GPU}]: is no whole number of devices"),
        ({"requests": {GPU: "0.5"}}, f"requests[{GPU}]: is no whole number of devices"),
        ({"limits": {GPU: "500m"}}, f"limits[{GPU}]: is no whole number of devices"),
        ({"requests": {GPU: 1}, "limits": {GPU: 2}}, f"requests[{GPU}]: is not the limit, 2"),
        (
            {"requests": {"memory": "4Gi"}, "limits": {"memory": "2Gi"}},
            "requests.memory: is more than the limit, 2Gi",
        ),
        ({"limits": {"gpu": 1}}, "limits.gpu: is no resource of a container"),
        ({"requests": {"storage": "1Gi"}}, "requests.storage: is no resource of a container"),
        ({"limits": {"memory": "500m"}}, "limits.memory: is no whole number of bytes"),
        (
            {"requests": {"hugepages-2Mi": "4Mi", "cpu": 1}},
            "limits.hugepages-2Mi: is missing, which its request needs",
        ),
    ],
)
@pytest.mark.parametrize("owner", [SiloAgentTemplate, AggregatorSpec])
def test_what_no_pod_may_have_is_refused(owner: type[Any], resources: dict[str, Any], said: str) -> None:
    assert lines(owner, {"resources": resources}) == [f"resources.{said}"]


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {GPU: 1}},
        {"requests": {GPU: "1"}, "limits": {GPU: 1}},
        {"requests": {"memory": "2048Mi", "cpu": "1500m"}, "limits": {"memory": "2Gi", "cpu": "1.5"}},
        {"requests": {"memory": "1.5Gi", "ephemeral-storage": "1Gi"}},
        {"requests": {"hugepages-1Gi": "1Gi"}, "limits": {"hugepages-1Gi": "1024Mi", "memory": "2Gi"}},
        {"limits": {GPU: 0}},
    ],
)
def test_what_a_pod_may_have_is_permitted(resources: dict[str, Any]) -> None:
    assert lines(SiloAgentTemplate, {"resources": resources}) == []


def test_all_amounts_are_told_of_at_once() -> None:
    resources = {"requests": {GPU: 1, "memory": "4Gi"}, "limits": {"gpu": 1, "memory": "2Gi"}}

    assert len(lines(SiloAgentTemplate, {"resources": resources})) == 3


@pytest.mark.parametrize("size", [0, "0", "0Gi", "0.0", "500m"])
def test_a_volume_has_some_bytes(size: object) -> None:
    assert [line.partition(":")[0] for line in lines(StorageSpec, {"size": size})] == ["size"]
