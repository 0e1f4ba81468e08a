"""What `kubectl fedsilo rotate-key` and `leave` share: an annotation of the institution's Silo, in its own cluster."""

from __future__ import annotations

import json

from fedsilo.api.observed import Object
from fedsilo.cli.cluster.enrolment import MANAGER
from fedsilo.cli.cluster.federation import SILOS
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.errors import FedsiloError, ManifestInvalid


def own_silo(kubectl: Kubectl, name: str, elsewhere: str) -> Object:
    """The Silo of that name, whose silo controller is in this cluster.

    :param elsewhere: what to do where the Silo is that of an institution outside.
    :raises ManifestInvalid: when it is.
    """
    silo: Object = kubectl.get(SILOS, name)
    if silo["spec"].get("remote") is not None:
        raise ManifestInvalid(f"Silo {name}: is that of an institution outside of this cluster; {elsewhere}")
    return silo


def annotate(kubectl: Kubectl, silo: Object, annotation: str, value: str) -> None:
    """Annotate the very Silo that was read; that its status changes all the time does not matter.

    :raises FedsiloError: when it was made anew meanwhile.
    """
    name, namespace = silo["metadata"]["name"], silo["metadata"]["namespace"]
    content = {"metadata": {"uid": silo["metadata"]["uid"], "annotations": {annotation: value}}}
    try:
        kubectl.call(
            *("patch", SILOS, name, "--namespace", namespace, "--type=merge"),
            *(f"--field-manager={MANAGER}", f"--patch={json.dumps(content)}"),
        )
    except FedsiloError as error:
        if "metadata.uid" not in str(error):
            raise
        raise FedsiloError(f"Silo {namespace}/{name} was made anew meanwhile; look at it again") from error
