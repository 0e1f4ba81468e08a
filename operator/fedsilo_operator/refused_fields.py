"""Fields of manifests behind those of children: what a person wrote where an API server finds a child invalid.

A child is made of a manifest and of nothing that changes by itself: as long as the field says the same, the API server
refuses the child. What stands in no table here is the operator's own, or another's, such as an address that is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import FieldCause
from fedsilo_operator.objects import (
    CLAIM,
    COMPONENT,
    CONFIG_MAP,
    FEDERATED_JOB,
    JOB,
    NETWORK_POLICY,
    SILO_AGENT,
    kind_of,
    labels_of,
)

_POD: Final = r"spec\.template\.spec\."

_OF_JOB: Final[Mapping[str, Mapping[str, str]]] = {
    JOB.name: {
        rf"{_POD}containers\[0\]\.(resources\..+)": r"spec.aggregator.\1",
        rf"{_POD}containers\[0\]\.(image)": r"spec.aggregator.\1",
        rf"{_POD}(imagePullSecrets.*)": r"spec.aggregator.\1",
        rf"{_POD}volumes\[\d+\]\.emptyDir\.sizeLimit": "spec.aggregator.resources.limits.ephemeral-storage",
        rf"{_POD}volumes\[\d+\]\..+": "spec.aggregator.datasets",
        rf"{_POD}containers\[0\]\.volumeMounts\[\d+\]\..+": "spec.aggregator.datasets",
        rf"{_POD}containers\[0\]\.env\[\d+\]\.valueFrom\..+": "spec.output.mlflow.credentialsSecret",
        r"spec\.backoffLimit": "spec.backoffLimit",
    },
    CLAIM.name: {
        r"spec\.resources.*": "spec.aggregator.storage.size",
        r"spec\.storageClassName": "spec.aggregator.storage.storageClassName",
    },
    CONFIG_MAP.name: {r"|\[\]|data.*": "spec"},
    NETWORK_POLICY.name: {r"spec\.egress.*": "spec.output.mlflow.trackingUri"},
    SILO_AGENT.name: {r"spec\.job\.spec\.(.+)": r"spec.\1"},
}
"""Kind of a job's child -> pattern of a field in it -> the field of the FederatedJob."""

_OF_SILO: Final[Mapping[str, Mapping[str, str]]] = {
    JOB.name: {
        rf"{_POD}(?:containers|initContainers)\[0\]\.(resources\..+)": r"spec.agent.\1",
        rf"{_POD}initContainers\[0\]\.image": "spec.agent.guardImage",
        rf"{_POD}((?:nodeSelector|tolerations|runtimeClassName|imagePullSecrets).*)": r"spec.agent.\1",
        rf"{_POD}volumes\[\d+\]\.emptyDir\.sizeLimit": "spec.agent.resources.limits.ephemeral-storage",
        rf"{_POD}volumes\[\d+\]\..+": "spec.datasets",
        rf"{_POD}containers\[0\]\.volumeMounts\[\d+\]\..+": "spec.datasets",
    },
    CLAIM.name: {
        r"spec\.resources.*": "spec.agent.storage.size",
        r"spec\.storageClassName": "spec.agent.storage.storageClassName",
    },
}
"""Kind of an agent's child -> pattern of a field in it -> the field of the Silo."""

_JOB_OF_TRAINER: Final = {rf"{_POD}containers\[0\]\.image": "spec.agents.image"}
"""Fields of a trainer's Job that are the FederatedJob's."""


def manifest_fields(child: Object, causes: tuple[FieldCause, ...], owner: Object) -> tuple[list[str], bool]:
    """What is wrong in the manifest, a sentence for each field, and whether that manifest is the immutable one.

    :param child: what was to be written.
    :param owner: the object that was reconciled, a FederatedJob or a SiloAgent.
    :return: nothing where a cause is not of a field that a person wrote.
    """
    kind = kind_of(child).name
    if owner["kind"] == FEDERATED_JOB.name:
        return list(_field_texts(_OF_JOB.get(kind, {}), causes)), True
    if owner["kind"] == SILO_AGENT.name:
        if labels_of(child).get(COMPONENT) == "trainer" and (
            of_job := list(_field_texts(_JOB_OF_TRAINER, causes))
        ):
            return of_job, True
        return list(_field_texts(_OF_SILO.get(kind, {}), causes)), False
    return [], False


def _field_texts(patterns: Mapping[str, str], causes: tuple[FieldCause, ...]) -> Iterator[str]:
    """The causes by the manifest's own fields, each once."""
    said = set()
    for cause in causes:
        for pattern, field in patterns.items():
            if match := re.fullmatch(pattern, cause.field):
                text = f"{match.expand(field)}: {' '.join(cause.message.split()).rstrip('.')}"
                if text not in said:
                    said.add(text)
                    yield text
                break
