"""What `kubectl fedsilo invite`, `accept` and `revoke` share: the consortium's office decides who takes part.

The decisions stand in `Silo.spec.remote`. The gateway writes into the Silo's status where institutions find it, and
what they have registered.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo_status import HubAddress
from fedsilo.cli.cluster.federation import SILOS
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments
from fedsilo.errors import FedsiloError, ManifestInvalid

MANAGER = "fedsilo-enrolment"
"""Field manager of what is written here."""

HUB_SECONDS = 30.0
"""Time within which the gateway writes its address into a new Silo."""

GATEWAYS = "--selector=app.kubernetes.io/component=gateway"
"""The label of the gateway's Deployment and pods."""

_POLL_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo and its cluster."""
    parser.add_argument("silo", metavar="NAME", help="name of the Silo")
    add_cluster_arguments(parser)


def add_question(parser: argparse.ArgumentParser) -> None:
    """The option of what is asked first."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def remote_silo(kubectl: Kubectl, name: str) -> Object:
    """The Silo of an institution outside of the cluster.

    :raises ManifestInvalid: when there is none of that name.
    """
    silo: Object = kubectl.get(SILOS, name)
    if silo["spec"].get("remote") is None:
        raise ManifestInvalid(
            f"Silo {name}: is a silo of this cluster: it has no spec.remote; invite an institution under another name"
        )
    return silo


def patch(kubectl: Kubectl, silo: Object, remote: Mapping[str, Any]) -> None:
    """Change `spec.remote` of the very Silo that was read; null removes a field.

    :raises FedsiloError: when it was changed meanwhile.
    """
    name, namespace = silo["metadata"]["name"], silo["metadata"]["namespace"]
    content = {
        "metadata": {"resourceVersion": silo["metadata"]["resourceVersion"]},
        "spec": {"remote": remote},
    }
    try:
        kubectl.call(
            *("patch", SILOS, name, "--namespace", namespace, "--type=merge"),
            *(f"--field-manager={MANAGER}", f"--patch={json.dumps(content)}"),
        )
    except FedsiloError as error:
        if "(Conflict)" not in str(error):
            raise
        raise FedsiloError(f"Silo {namespace}/{name} was changed meanwhile; look at it again") from error


def hub_of(kubectl: Kubectl, name: str) -> HubAddress:
    """The gateway's address, which it writes into the Silo's status soon after that is made.

    :raises FedsiloError: when it does not.
    """
    end = time.monotonic() + HUB_SECONDS
    while True:
        found = status_of(kubectl.get(SILOS, name)).get("hub")
        if found is not None:
            try:
                return HubAddress.model_validate(found)
            except ValidationError:
                raise FedsiloError(
                    f"Silo {name}: status.hub is not what this version understands; use the hub's version of fedsilo"
                ) from None
        if time.monotonic() >= end:
            raise FedsiloError(
                f"Silo {name}: no gateway has written its address into status.hub within {HUB_SECONDS:g} s; "
                f"{_gateway_remedy(kubectl)}, and invite again"
            )
        time.sleep(_POLL_SECONDS)


def _gateway_remedy(kubectl: Kubectl) -> str:
    """What to do about a gateway that has not written its address: one that is there may still be starting."""
    missing = "switch on gateway.enabled in the values of the chart fedsilo"
    try:
        found = json.loads(kubectl.call("get", "deployments", "--all-namespaces", GATEWAYS, "--output=json"))
    except FedsiloError:  # the office need not read everything
        return f"{missing}, or wait until the gateway is ready where it is"
    for deployment in found["items"]:
        name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
        if not status_of(deployment).get("readyReplicas"):
            return (
                f"the gateway is pending: Deployment {namespace}/{name} has no pod that is ready; look why with "
                f"`kubectl describe pods -n {namespace} {GATEWAYS}`"
            )
        return f"read `kubectl logs -n {namespace} deployment/{name}`, whose pod is ready"
    return missing
