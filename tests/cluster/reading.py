"""Reading objects over one connection: tests ask again and again, and each start of kubectl costs 0.1 s of CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes.config import new_client_from_config

from fedsilo.api.observed import Object
from fedsilo_operator.objects import KINDS, Kind
from hack.cluster.kubectl import PATIENCE_SECONDS, KubectlError

_KINDS = {name: kind for kind in KINDS.values() for name in (kind.name.lower(), kind.plural)}


def is_readable(kind: str) -> bool:
    """Whether a word that kubectl takes for a kind is one that the operator handles too."""
    return kind in _KINDS


def read(kubeconfig: Path, kind: str, namespace: str, name: str) -> Object | None:
    """One object, None when there is none.

    :param kind: singular or plural, in lower case.
    :raises KubectlError: when the server refuses.
    """
    found = _get(kubeconfig, _KINDS[kind], namespace, f"/{name}")
    return None if found is None else _shown_object(_KINDS[kind], found)


def select(kubeconfig: Path, kind: str, namespace: str, selectors: Mapping[str, str]) -> list[Object]:
    """Objects in a namespace.

    :param selectors: `labelSelector` and `fieldSelector`.
    :raises KubectlError: when the server refuses.
    """
    resource = _KINDS[kind]
    found = _get(kubeconfig, resource, namespace, f"?{urlencode(selectors)}") or {"items": []}
    return [_shown_object(resource, item) for item in found["items"]]


def _shown_object(kind: Kind, item: Object) -> Object:
    """An object as kubectl shows it: without managed fields, and an item of a list says what it is."""
    item["metadata"].pop("managedFields", None)
    return {"apiVersion": kind.api, "kind": kind.name} | item


def _get(kubeconfig: Path, kind: Kind, namespace: str, rest: str) -> Any:
    client: Any = _client(kubeconfig, kubeconfig.stat().st_mtime_ns)
    group = f"apis/{kind.api}" if "/" in kind.api else f"api/{kind.api}"
    path = f"/{group}/namespaces/{namespace}/{kind.plural}{rest}"
    response = client.call_api("GET", client.configuration.host + path, _request_timeout=PATIENCE_SECONDS)
    body = response.read()
    if response.status == 404:
        return None
    if response.status != 200:
        raise KubectlError(f"GET {path}: {response.status} {body.decode(errors='replace')[:500]}")
    return json.loads(body)


@cache
def _client(kubeconfig: Path, written: int) -> Any:
    """A kubeconfig that is written anew is another server's."""
    connect: Callable[[str], Any] = new_client_from_config
    return connect(str(kubeconfig))
