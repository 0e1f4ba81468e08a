"""A claim gets a volume when it has a node and none yet; a volume goes when its claim is gone."""

from __future__ import annotations

import copy
from typing import Any

from hack.cluster.paths import NODE
from hack.cluster.storage import missing_volumes, released_volumes

CLAIM: dict[str, Any] = {
    "metadata": {
        "namespace": "silo-north",
        "name": "data",
        "uid": "1234",
        "resourceVersion": "7",
        "annotations": {"volume.kubernetes.io/selected-node": NODE},
    },
    "spec": {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def claim_without(path: tuple[str, ...]) -> dict[str, Any]:
    claim = copy.deepcopy(CLAIM)
    inner = claim
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return claim


def test_a_claim_with_a_node_gets_a_volume_bound_to_it() -> None:
    (volume,) = missing_volumes([CLAIM], [])
    assert volume["metadata"]["name"] == "pvc-1234"
    assert volume["spec"]["capacity"] == {"storage": "1Gi"}
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"], reference["uid"]) == ("silo-north", "data", "1234")
    assert missing_volumes([CLAIM], [volume]) == []


def test_other_claims_wait() -> None:
    bound = copy.deepcopy(CLAIM)
    bound["spec"]["volumeName"] = "pvc-9"
    foreign = copy.deepcopy(CLAIM)
    foreign["spec"]["storageClassName"] = "fast"
    going = copy.deepcopy(CLAIM)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    nowhere = claim_without(("metadata", "annotations"))
    assert missing_volumes([bound, foreign, going, nowhere], []) == []


def test_only_our_released_volumes_are_removed() -> None:
    (volume,) = missing_volumes([CLAIM], [])
    released: dict[str, Any] = {**volume, "status": {"phase": "Released"}}
    kept = copy.deepcopy(released)
    kept["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    foreign = copy.deepcopy(released)
    foreign["metadata"]["annotations"] = {}
    still_bound = {**released, "status": {"phase": "Bound"}}
    assert released_volumes([released]) == ["pvc-1234"]
    assert released_volumes([kept, foreign, still_bound]) == []
