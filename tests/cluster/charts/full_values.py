"""Values of the charts: the least, nearly everything at once, and those of an institution's own cluster."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.charts.helm import OPERATOR, SILO, Values, invitation, quickstart

NORTH = quickstart("north")[1]

WATCHED_VALUES: Values = {
    "labels": {"release": "one"},
    **{name: {"enabled": True} for name in ("serviceMonitor", "podMonitor", "rules", "dashboard")},
}

MIRROR: Values = {"registry": "registry.example/mirror"}

TEMPLATE: Values = {
    "podLabels": {"team": "blue"},
    "podAnnotations": {"example.com/cost": "4711"},
    "priorityClassName": "platform",
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
    ],
}
"""What a platform asks of a Deployment's pods."""

FULL_VALUES: dict[Path, Values] = {
    OPERATOR: TEMPLATE
    | {
        "global": MIRROR,
        "commonLabels": {"cost-centre": "4711"},
        "replicas": 3,
        "images": {"operator": {"repository": "registry.example:5000/a/op", "digest": f"sha256:{'0' * 64}"}},
        "imagePullSecrets": ["one", "two"],
        "jobNamespaces": ["research", "teaching"],
        "jobPriorityClassName": "research",
        "priorityClasses": {"create": True},
        "metrics": WATCHED_VALUES,
        "dashboard": {"tlsSecret": "certificate"},
        "crds": {"keep": False},
    },
    SILO: NORTH
    | {
        "global": MIRROR,
        "commonLabels": {"cost-centre": "4711"},
        "connector": TEMPLATE,
        "labels": {"region": "north"},
        "signingKey": {"create": False},
        "agent": {
            "resources": {"requests": {"cpu": 4}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 1}},
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "runtimeClassName": "sandbox",
            "storage": {"storageClassName": "fast"},
            "guardImage": "registry.example/guard:1",
            "guardResources": {"limits": {"cpu": 1, "memory": "1Gi"}},
            "podTemplate": {"metadata": {"labels": {"team": "blue"}}, "priorityClassName": "research"},
        },
        "policy": {"maxBytesPerRound": 100_000_000, "maxRounds": 10, "manualApproval": True},
        "metrics": {"from": "team=watch", "labels": {"release": "one"}, "podMonitor": {"enabled": True}},
        "quota": {"requests.cpu": 8, "requests.memory": "16Gi"},
        "imagePullSecrets": ["one"],
    },
}
"""Nearly everything that can be set, at once."""

MINIMAL_VALUES: dict[Path, Values] = {OPERATOR: {"global": MIRROR}, SILO: NORTH | {"global": MIRROR}}

JOINED_VALUES = NORTH | yaml.safe_load(invitation("silo-north/north").to_yaml())
"""Values of an institution whose cluster is its own."""
