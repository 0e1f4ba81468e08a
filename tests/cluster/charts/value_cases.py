"""What each value of the charts changes."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.charts.helm import GLOBAL, OPERATOR, SILO, Values, invitation, quickstart

DIGEST = f"sha256:{'a' * 64}"

BASE: dict[Path, Values] = {
    OPERATOR: {
        "global": GLOBAL,
        "metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}},
        "dashboard": {"tlsSecret": "certificate", "service": {"type": "LoadBalancer"}},
        "proxy": {"url": "http://proxy.example:3128"},
        "gateway": {
            "service": {"type": "LoadBalancer"},
            "enabled": True,
            "url": "https://hub.example",
            "keySecret": "hub",
            "ingress": {"enabled": True},
            "httpRoute": {"enabled": True},
        },
    },
    SILO: {
        "global": GLOBAL,
        "datasets": quickstart("north")[1]["datasets"],
        "metrics": {"from": "a=b", "podMonitor": {"enabled": True}},
    },
}
"""What is there already: some values are about objects that are not there by default."""

INSTITUTION: Values = {
    **BASE[SILO],
    **yaml.safe_load(invitation("default/north").to_yaml()),
    "proxy": {"url": "http://proxy.example:3128", "authorities": "-----BEGIN CERTIFICATE-----"},
}
"""Values of a release in an institution's own cluster."""

OF_INSTITUTION = ("images", "platform", "connector", "proxy", "egress", "apiServer", "crds")
"""Values of the chart fedsilo-silo that are about such a release only."""


def pod_changes(prefix: str = "") -> dict[str, tuple[object, str]]:
    """Another value for each that a Deployment's pods have, and what then appears."""
    spread = [{"maxSkew": 1, "topologyKey": f"{prefix}zone", "whenUnsatisfiable": "DoNotSchedule"}]
    return {
        f"{prefix}podLabels": ({"team": f"{prefix}blue"}, f"team: {prefix}blue"),
        f"{prefix}podAnnotations": ({"a.b/note": f"{prefix}x"}, f"a.b/note: {prefix}x"),
        f"{prefix}priorityClassName": (f"{prefix}high", f"priorityClassName: {prefix}high"),
        f"{prefix}nodeSelector": ({"pool": f"{prefix}infra"}, f"pool: {prefix}infra"),
        f"{prefix}tolerations": ([{"key": f"{prefix}infra"}], f"key: {prefix}infra"),
        f"{prefix}affinity": ({"nodeAffinity": {}}, "affinity:\n        nodeAffinity: {}"),
        f"{prefix}topologySpreadConstraints": (spread, f"topologyKey: {prefix}zone"),
    }


CHANGES: dict[Path, dict[str, tuple[object, str]]] = {
    OPERATOR: {
        "global.registry": ("mirror.example:5000/f", "image: mirror.example:5000/f/fedsilo-operator:0.1.0"),
        "commonLabels": ({"team": "blue"}, "team: blue"),
        "replicas": (4, "replicas: 4"),
        "images.pullPolicy": ("Always", "imagePullPolicy: Always"),
        "images.operator.repository": ("r.example/one", "image: r.example/one:0.1.0"),
        "images.operator.tag": ("9", "image: registry.example/fedsilo-operator:9"),
        "images.operator.digest": (DIGEST, f"image: registry.example/fedsilo-operator@{DIGEST}"),
        "images.aggregator.repository": ("r.example/two", "--aggregator-image=r.example/two:0.1.0"),
        "images.aggregator.tag": ("9", "--aggregator-image=registry.example/fedsilo-aggregator:9"),
        "images.aggregator.digest": (
            DIGEST,
            f"--aggregator-image=registry.example/fedsilo-aggregator@{DIGEST}",
        ),
        "images.guard.repository": ("r.example/three", "--guard-image=r.example/three:0.1.0"),
        "images.guard.tag": ("9", "--guard-image=registry.example/fedsilo-guard:9"),
        "images.guard.digest": (DIGEST, f"--guard-image=registry.example/fedsilo-guard@{DIGEST}"),
        "images.trainer.repository": ("r.example/four", "--trainer-image=r.example/four:0.1.0"),
        "images.trainer.tag": ("9", "--trainer-image=registry.example/fedsilo-trainer:9"),
        "images.trainer.digest": (DIGEST, f"--trainer-image=registry.example/fedsilo-trainer@{DIGEST}"),
        "imagePullSecrets": (["login"], "- name: login"),
        "platform": ("openshift", "--platform=openshift"),
        "resources": ({"limits": {"memory": "2Gi"}}, "memory: 2Gi"),
        **pod_changes(),
        "jobPriorityClassName": ("batch", "--job-priority-class=batch"),
        "priorityClasses.create": (True, "name: fedsilo-jobs"),
        "proxy.url": ("http://other.example:8080", "--guard-proxy=http://other.example:8080"),
        "proxy.noProxy": ("10.0.0.0/8", "--guard-no-proxy=10.0.0.0/8"),
        "apiServer.ports": ([8443], "--api-server-ports=8443"),
        "jobNamespaces": (["research"], "namespace: research"),
        "metrics.enabled": (False, ""),
        "metrics.from": ("team=watch,a.b/c=d", "--metrics-from=team=watch,a.b/c=d"),
        "metrics.interval": ("7s", "interval: 7s"),
        "metrics.labels": ({"release": "prometheus"}, "release: prometheus"),
        "metrics.serviceMonitor.enabled": (False, ""),
        "metrics.podMonitor.enabled": (True, "kind: PodMonitor"),
        "metrics.rules.enabled": (False, ""),
        "metrics.rules.pages": (
            "https://wiki.example/fedsilo/",
            "runbook_url: https://wiki.example/fedsilo/alerts.html#fedsilojobfailed",
        ),
        "metrics.dashboard.enabled": (True, 'grafana_dashboard: "1"'),
        "dashboard.enabled": (False, ""),
        "dashboard.tlsSecret": ("wildcard", "secretName: wildcard"),
        "dashboard.service.type": ("NodePort", "type: NodePort"),
        "dashboard.service.nodePort": (30443, "nodePort: 30443"),
        "gateway.enabled": (False, ""),
        "gateway.url": ("https://other.example:8443", "--url=https://other.example:8443"),
        "gateway.ca": ("-----BEGIN", "ca.crt: |\n    -----BEGIN"),
        "gateway.keySecret": ("elsewhere", "secretName: elsewhere"),
        "gateway.replicas": (5, "replicas: 5"),
        "gateway.tlsSecret": ("wildcard", "secretName: wildcard"),
        "gateway.limits.openRequests": (7, "--max-open-requests=7"),
        "gateway.limits.requestsPerSecond": (0.5, "--max-requests-per-second=0.5"),
        "gateway.limits.bodyGiB": (3, "--max-body-bytes=3221225472"),
        "gateway.resources": ({"limits": {"memory": "3Gi"}}, "memory: 3Gi"),
        **pod_changes("gateway."),
        "gateway.service.type": ("NodePort", "type: NodePort"),
        "gateway.service.nodePort": (30444, "nodePort: 30444"),
        "gateway.service.annotations": ({"a.b/c": "d"}, "a.b/c: d"),
        "gateway.ingress.enabled": (False, ""),
        "gateway.ingress.className": ("edge", "ingressClassName: edge"),
        "gateway.ingress.annotations": ({"e.f/g": "h"}, "e.f/g: h"),
        "gateway.ingress.tlsSecret": ("edge-tls", "secretName: edge-tls"),
        "gateway.httpRoute.enabled": (False, ""),
        "gateway.httpRoute.parentRefs": ([{"name": "edge"}], "name: edge"),
        "crds.keep": (False, ""),
    },
    SILO: {
        "global.registry": ("mirror.example:5000/f", "image: mirror.example:5000/f/fedsilo-guard:0.1.0"),
        "commonLabels": ({"team": "blue"}, "team: blue"),
        "name": ("south", "name: south"),
        "labels": ({"region": "south"}, "region: south"),
        "operatorNamespace": ("elsewhere", "namespace: elsewhere"),
        "signingKey.create": (False, ""),
        "datasets": ([{"name": "scans", "loader": "imagefolder"}], "name: scans"),
        "agent.resources": ({"limits": {"nvidia.com/gpu": 3}}, '"nvidia.com/gpu":3'),
        "agent.nprocPerNode": (2, "nprocPerNode: 2"),
        "agent.nodeSelector": ({"pool": "gpu"}, 'nodeSelector: {"pool":"gpu"}'),
        "agent.tolerations": ([{"key": "gpu"}], 'tolerations: [{"key":"gpu"}]'),
        "agent.runtimeClassName": ("kata", 'runtimeClassName: "kata"'),
        "agent.storage.size": ("1Ti", '"size":"1Ti"'),
        "agent.storage.storageClassName": ("fast", '"storageClassName":"fast"'),
        "agent.guardImage": ("r.example/guard:7", 'guardImage: "r.example/guard:7"'),
        "agent.imagePullSecrets": (["mirror"], "mirror"),
        "agent.guardResources": ({"limits": {"cpu": 2}}, 'guardResources: {"limits":{"cpu":2}}'),
        "agent.podTemplate": ({"priorityClassName": "low"}, 'podTemplate: {"priorityClassName":"low"}'),
        "policy.methods": (["fedavg"], 'methods: ["fedavg"]'),
        "policy.transforms": (["signs"], 'transforms: ["signs"]'),
        "policy.payloadKinds": (["model"], 'payloadKinds: ["model"]'),
        "policy.minSamplesPerClass": (20, "minSamplesPerClass: 20"),
        "policy.minSamplesPerFeature": (30, "minSamplesPerFeature: 30"),
        "policy.minSamplesPerUpdate": (8, "minSamplesPerUpdate: 8"),
        "policy.personalAccuracy": ("Withheld", 'personalAccuracy: "Withheld"'),
        "policy.scores": ("PerSilo", 'scores: "PerSilo"'),
        "policy.maxBytesPerRound": (100_000_000, "maxBytesPerRound: 100000000"),
        "policy.maxBytesPerJob": ("2Gi", 'maxBytesPerJob: "2Gi"'),
        "policy.jobNamespaces": (["research"], 'jobNamespaces: ["research"]'),
        "policy.trainerImages": ([f"r/t@{DIGEST}"], f'trainerImages: ["r/t@{DIGEST}"]'),
        "policy.metadataKeys": (["team"], 'metadataKeys: ["team"]'),
        "policy.maxRounds": (7, "maxRounds: 7"),
        "policy.maxAnsweredRounds": (6, "maxAnsweredRounds: 6"),
        "policy.minSilos": (3, "minSilos: 3"),
        "policy.privacyBudget": (
            [{"dataset": "digits", "unit": "person", "epsilon": 1.5, "delta": 0.001}],
            '"dataset":"digits","delta":0.001,"epsilon":1.5,"unit":"person"',
        ),
        "policy.notBefore": ("2026-07-01T00:00:00Z", 'notBefore: "2026-07-01T00:00:00Z"'),
        "policy.notAfter": ("2026-12-31T23:59:59Z", 'notAfter: "2026-12-31T23:59:59Z"'),
        "policy.manualApproval": (True, "manualApproval: true"),
        "metrics.from": ("team=watch,a.b/c=d", 'a.b/c: "d"'),
        "metrics.interval": ("7s", "interval: 7s"),
        "metrics.labels": ({"release": "prometheus"}, "release: prometheus"),
        "metrics.podMonitor.enabled": (False, ""),
        "quota": ({"pods": 12}, 'pods: "12"'),
        "testImage": ("r.example/python:3", "image: r.example/python:3"),
        "imagePullSecrets": (["login"], "- name: login"),
        "platform": ("openshift", "--platform=openshift"),
        "images.pullPolicy": ("Always", "imagePullPolicy: Always"),
        "images.operator.repository": ("r.example/one", "image: r.example/one:0.1.0"),
        "images.operator.tag": ("9", "image: registry.example/fedsilo-operator:9"),
        "images.operator.digest": (DIGEST, f"image: registry.example/fedsilo-operator@{DIGEST}"),
        "images.guard.repository": ("r.example/three", "--guard-image=r.example/three:0.1.0"),
        "images.guard.tag": ("9", "--guard-image=registry.example/fedsilo-guard:9"),
        "images.guard.digest": (DIGEST, f"--guard-image=registry.example/fedsilo-guard@{DIGEST}"),
        "images.trainer.repository": ("r.example/four", "--trainer-image=r.example/four:0.1.0"),
        "images.trainer.tag": ("9", "--trainer-image=registry.example/fedsilo-trainer:9"),
        "images.trainer.digest": (DIGEST, f"--trainer-image=registry.example/fedsilo-trainer@{DIGEST}"),
        "connector.replicas": (2, "replicas: 2"),
        "connector.resources": ({"limits": {"memory": "3Gi"}}, "memory: 3Gi"),
        **pod_changes("connector."),
        "proxy.url": ("http://10.0.0.7:8080", "--guard-proxy-port=8080"),
        "proxy.noProxy": ("10.0.0.0/8", 'NO_PROXY: "10.0.0.0/8"'),
        "proxy.secret": ("login", "--guard-proxy-secret=login"),
        "proxy.authorities": ("-----BEGIN CERTIFICATE-----\nTWO", "-----BEGIN CERTIFICATE-----\n    TWO"),
        "egress.networks": (["192.0.2.7/32"], "cidr: 192.0.2.7/32"),
        "apiServer.ports": ([16443], "port: 16443"),
        "crds.install": (False, ""),
    },
}
"""Another value for each, and what then appears; "" where something goes away."""
