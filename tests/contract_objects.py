"""Small objects of several kinds, for tests of what a cluster does with them."""

from __future__ import annotations

from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.objects import SILO_KIND


def config_map(namespace: str, name: str = "a", data: Any = None, **metadata: Any) -> Object:
    metadata |= {"namespace": namespace, "name": name}
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return content if data is None else content | {"data": data}


def service(namespace: str, **more: Any) -> Object:
    metadata = {"namespace": namespace, "name": "s"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [{"port": 1}]},
        **more,
    }


def silo(namespace: str) -> Object:
    return {
        "apiVersion": SILO_KIND.api,
        "kind": SILO_KIND.name,
        "metadata": {"namespace": namespace, "name": "s"},
        "spec": {
            "datasets": [{"name": "digits", "loader": "sklearn:digits"}],
            "policy": {"methods": ["fedavg"], "payloadKinds": ["model"]},
        },
    }


def condition(of: Object, name: str, status: str, **more: str) -> Object:
    """An apply of one condition to the status of an object.

    :param more: further metadata, such as its version.
    """
    found = {
        "type": name,
        "status": status,
        "reason": "A",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    metadata = {key: of["metadata"][key] for key in ("namespace", "name", "uid")} | more
    content = {key: of[key] for key in ("apiVersion", "kind")}
    return content | {"metadata": metadata, "status": {"conditions": [found]}}


def job(namespace: str, image: str = "i", **spec: Any) -> Object:
    containers = [{"name": "c", "image": image}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": namespace, "name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}, **spec},
    }
