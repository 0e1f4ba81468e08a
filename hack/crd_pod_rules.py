"""Rules of what ends up in pods: resources, images, labels, annotations, tolerations and volumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fedsilo.api.common import REGISTRY_PROBLEM
from fedsilo.api.patterns import REGISTRY
from fedsilo.api.pod_template import (
    CONFINEMENT_PROBLEM,
    OWNED_KEY_PROBLEM,
    OWNED_KEYS,
    OWNED_PREFIXES,
    SECURITY_PREFIXES,
    SYSTEM_CLASS_PROBLEM,
    SYSTEM_PRIORITY,
)
from fedsilo.api.resources import (
    BYTE_RESOURCES,
    HUGE_PAGES,
    KNOWN_RESOURCES,
    LEAST_LIMITS,
    PARTS_OF_A_UNIT,
    QUOTA_PREFIX,
)
from hack.crd_rule import Rule

_DEVICE_RESOURCE: Final = "name.contains('/')"
_LIMITED_RESOURCE: Final = f"({_DEVICE_RESOURCE} || name.startsWith('{HUGE_PAGES}'))"

AMOUNTS_RULE: Final = Rule(
    f"self.all(name, {_DEVICE_RESOURCE} ? string(self[name]).matches('^[0-9]+$')"
    f" && !name.startsWith('{QUOTA_PREFIX}') : name == 'cpu' || name.startsWith('{HUGE_PAGES}')"
    f" || name in {list(BYTE_RESOURCES)} && !string(self[name]).matches('{PARTS_OF_A_UNIT}'))",
    f"has what is no resource of a container, or parts of a device or of a byte; {KNOWN_RESOURCES}: 1, and bytes as M, "
    "Mi or Gi",
)
"""The rule of a mapping from resources to amounts, see `fedsilo.api.resources`.

The form of a key is none of it: an API server takes each for as long as a request, and a pattern for too expensive."""


def _requests_rule(field: str = "resources") -> Rule:
    """The rule of a container's requests beside its limits."""
    requests, limits = f"self.{field}.requests", f"self.{field}.limits"
    compared = f"quantity(string({requests}[name])).compareTo(quantity(string({limits}[name])))"
    return Rule(
        f"!has(self.{field}) || !has({requests}) || {requests}.all(name, has({limits}) && name in {limits}"
        f" ? {compared} == 0 || !{_LIMITED_RESOURCE} && {compared} < 0 : !{_LIMITED_RESOURCE})",
        "has more than limits, or a device or huge pages that limits have not; write what they have",
        f".{field}.requests",
    )


def _registry_rule(field: str) -> Rule:
    """The rule of an image that a node is to pull."""
    return Rule(
        f"!has(self.{field}) || self.{field}.matches('{REGISTRY}')", "; ".join(REGISTRY_PROBLEM), f".{field}"
    )


def _key_rule(field: str, prefixes: tuple[str, ...], problem: str) -> Rule:
    """The rule of the keys of labels or annotations of pods.

    :param prefixes: beginnings of keys that are refused.
    """
    refused = f"key in {list(OWNED_KEYS)} || {list(prefixes)}.exists(start, key.startsWith(start))"
    return Rule(f"!has(self.{field}) || !self.{field}.exists(key, {refused})", problem, f".{field}")


def _limits_rules(field: str = "resources") -> tuple[Rule, ...]:
    """The rule of a container's limits: with less, none starts."""
    limits = f"self.{field}.limits"
    return tuple(
        Rule(
            f"!has(self.{field}) || !has({limits}) || !('{name}' in {limits})"
            f" || quantity(string({limits}['{name}'])).compareTo(quantity('{least}')) >= 0",
            f"has too little {name} for a container to start; use {least} or more, or leave it out",
            f".{field}.limits",
        )
        for name, least in LEAST_LIMITS.items()
    )


_PULL_SECRETS_RULE: Final = Rule(
    "!has(self.imagePullSecrets)"
    " || self.imagePullSecrets.all(one, self.imagePullSecrets.exists_one(other, other == one))",
    "has a name twice; remove one",
    ".imagePullSecrets",
)


POD_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "Toleration": (
        Rule(
            "self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "has no meaning with operator Exists; remove it, or use Equal",
            ".value",
        ),
        Rule(
            "self.operator != 'Equal' || has(self.key)",
            "is missing, which operator Equal needs; add it, or use operator Exists",
            ".key",
        ),
        Rule(
            "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
            "has a meaning for effect NoExecute only; write that effect, or remove it",
            ".tolerationSeconds",
        ),
    ),
    "SiloAgentTemplate": (
        _requests_rule(),
        _requests_rule("guardResources"),
        *_limits_rules(),
        *_limits_rules("guardResources"),
        _registry_rule("guardImage"),
        _PULL_SECRETS_RULE,
    ),
    "AgentsSpec": (_registry_rule("image"),),
    "PodMetadata": (
        _key_rule("labels", OWNED_PREFIXES, f"has what {'; '.join(OWNED_KEY_PROBLEM)}"),
        _key_rule(
            "annotations",
            (*OWNED_PREFIXES, *SECURITY_PREFIXES),
            f"has what {OWNED_KEY_PROBLEM[0]}, or {'; '.join(CONFINEMENT_PROBLEM)}",
        ),
    ),
    "PodTemplate": (
        Rule(
            f"!has(self.priorityClassName) || !self.priorityClassName.startsWith('{SYSTEM_PRIORITY}')",
            "; ".join(SYSTEM_CLASS_PROBLEM),
            ".priorityClassName",
        ),
    ),
    "StorageSpec": (
        Rule(
            "!has(self.size) || string(self.size).matches('[1-9]')"
            f" && !string(self.size).matches('{PARTS_OF_A_UNIT}')",
            "is no whole number of bytes above zero; write a size such as 10Gi",
            ".size",
        ),
    ),
    "AggregatorSpec": (
        _requests_rule(),
        _registry_rule("image"),
        *_limits_rules(),
        _PULL_SECRETS_RULE,
        # An API server asks the rule of the section's own default, too, before the fields in it have theirs.
        Rule(
            "!has(self.datasets) || self.datasets.all(held, !has(held.volume) || !has(held.volume.hostPath))",
            "volume.hostPath: is a directory of the node, which a job may not mount; use a persistentVolumeClaim",
            ".datasets",
        ),
    ),
}
"""Model of a part of a pod, or of what it is made of -> its rules."""
