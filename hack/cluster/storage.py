"""Local volumes on demand, for the StorageClass `local`.

A loop compares what claims ask for with what volumes exist, twice a second. A claim waits until the scheduler has
chosen the node of its first pod (`volumeBindingMode: WaitForFirstConsumer`), then it gets a directory. The directory
goes when the claim does. Sizes are recorded, not enforced.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from hack.cluster.client import Client
from hack.cluster.components import NODE_PLANE
from hack.cluster.paths import NODE, VOLUMES

PROVISIONER = "fedsilo.io/local"
STORAGE_CLASS = "local"

_SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
_PROVISIONER_ANNOTATION = "pv.kubernetes.io/provisioned-by"


def missing_volumes(claims: list[dict[str, Any]], volumes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A PersistentVolume for each claim that has a node and no volume."""
    existing = {volume["metadata"]["name"] for volume in volumes}
    wanted = [_volume(claim) for claim in claims if _is_waiting(claim)]
    return [volume for volume in wanted if volume["metadata"]["name"] not in existing]


def released_volumes(volumes: list[dict[str, Any]]) -> list[str]:
    """Names of our volumes whose claim is gone."""
    return [
        volume["metadata"]["name"]
        for volume in volumes
        if volume["metadata"].get("annotations", {}).get(_PROVISIONER_ANNOTATION) == PROVISIONER
        and volume["status"].get("phase") == "Released"
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and "deletionTimestamp" not in volume["metadata"]
    ]


def _is_waiting(claim: dict[str, Any]) -> bool:
    spec, metadata = claim["spec"], claim["metadata"]
    return (
        spec.get("storageClassName") == STORAGE_CLASS
        and not spec.get("volumeName")
        and metadata.get("annotations", {}).get(_SELECTED_NODE_ANNOTATION) == NODE
        and "deletionTimestamp" not in metadata
    )


def _volume(claim: dict[str, Any]) -> dict[str, Any]:
    spec, metadata = claim["spec"], claim["metadata"]
    name = f"pvc-{metadata['uid']}"
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
    reference = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_PROVISIONER_ANNOTATION: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": "Filesystem",
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
            "local": {"path": str(VOLUMES / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        },
    }


def reconcile(client: Client) -> None:
    """Make the local volumes that claims miss, and remove those that were released, in one pass."""
    claims = client.get("/api/v1/persistentvolumeclaims")["items"]
    volumes = client.get("/api/v1/persistentvolumes")["items"]
    for volume in missing_volumes(claims, volumes):
        directory = Path(volume["spec"]["local"]["path"])
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)  # pods without an fsGroup write too
        client.create("/api/v1/persistentvolumes", volume)
        print(f"made {directory.name}", flush=True)
    for name in released_volumes(volumes):
        shutil.rmtree(VOLUMES / name, ignore_errors=True)
        client.delete(f"/api/v1/persistentvolumes/{name}")
        print(f"removed {name}", flush=True)


def main() -> None:
    """Reconcile the local volumes until killed; requests that an API server does not answer are retried."""
    client = Client(NODE_PLANE.server, NODE_PLANE.pki)
    while True:
        try:
            reconcile(client)
        except OSError as error:
            print(error, flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
