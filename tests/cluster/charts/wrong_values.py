"""What is said of wrong values of the charts, each alone and beside others."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.charts.helm import OPERATOR, SILO, Values


def wrong_pod_values(prefix: str = "") -> dict[str, tuple[object, str]]:
    """A wrong value for each of these, and what is said about it."""
    at = f"at '/{prefix.replace('.', '/')}"
    spread = [{"maxSkew": 1, "topologyKey": "zone"}]
    return {
        f"{prefix}podLabels": (
            {"team": "blue and red"},
            f"{at}podLabels/team': 'blue and red' does not match",
        ),
        f"{prefix}podAnnotations": ({"a": 1}, f"{at}podAnnotations/a': got number, want string"),
        f"{prefix}priorityClassName": ("High", f"{at}priorityClassName': 'High' does not match"),
        f"{prefix}nodeSelector": ({"gpu": True}, f"{at}nodeSelector/gpu': got boolean, want string"),
        f"{prefix}tolerations": (["gpu"], f"{at}tolerations/0': got string, want object"),
        f"{prefix}affinity": ({"nodes": {}}, f"{at}affinity': additional properties 'nodes' not allowed"),
        f"{prefix}topologySpreadConstraints": (
            spread,
            f"{at}topologySpreadConstraints/0': missing property 'whenUnsatisfiable'",
        ),
    }


WRONG_VALUES: dict[Path, dict[str, tuple[object, str]]] = {
    OPERATOR: {
        "global.registry": ("a b", "at '/global/registry': 'a b' does not match"),
        "commonLabels": ({"a": 1}, "at '/commonLabels/a': got number, want string"),
        "replicas": (0, "at '/replicas': minimum: got 0, want 1"),
        "images.pullPolicy": ("Sometimes", "at '/images/pullPolicy': value must be one of"),
        "images.operator.repository": ("r/op:1", "at '/images/operator/repository': 'r/op:1' does not match"),
        "images.operator.tag": (1.0, "at '/images/operator/tag': got number, want string"),
        "images.operator.digest": ("abc", "at '/images/operator/digest': 'abc' does not match"),
        "images.aggregator.repository": ("", "at '/images/aggregator/repository': '' does not match"),
        "images.aggregator.tag": ("a b", "at '/images/aggregator/tag': 'a b' does not match"),
        "images.aggregator.digest": ("md5:1", "at '/images/aggregator/digest': 'md5:1' does not match"),
        "images.guard.repository": (None, "at '/images/guard': missing property 'repository'"),
        "images.guard.tag": ("-", "at '/images/guard/tag': '-' does not match"),
        "images.guard.digest": (True, "at '/images/guard/digest': got boolean, want string"),
        "images.trainer.repository": ("R", "at '/images/trainer/repository': 'R' does not match"),
        "images.trainer.tag": ([], "at '/images/trainer/tag': got array, want string"),
        "images.trainer.digest": (1, "at '/images/trainer/digest': got number, want string"),
        "imagePullSecrets": (
            [{"name": "login"}],
            "at '/imagePullSecrets/0': got object, want string",
        ),
        "platform": ("windows", "at '/platform': value must be one of 'kubernetes', 'openshift'"),
        "resources": ({"limits": {"memory": "lots"}}, "at '/resources/limits/memory': 'lots' does not match"),
        **wrong_pod_values(),
        "jobPriorityClassName": ("Batch", "at '/jobPriorityClassName': 'Batch' does not match"),
        "priorityClasses.create": ("no", "at '/priorityClasses/create': got string, want boolean"),
        "proxy.url": ("http://user:password@proxy.example:3128", "at '/proxy/url': 'http://user"),
        "proxy.noProxy": ("a, b", "at '/proxy/noProxy': 'a, b' does not match"),
        "apiServer.ports": ([0], "at '/apiServer/ports/0': minimum: got 0, want 1"),
        "jobNamespaces": (["A"], "at '/jobNamespaces/0': 'A' does not match"),
        "metrics.enabled": ("yes", "at '/metrics/enabled': got string, want boolean"),
        "metrics.from": ("", "at '/metrics/from': '' does not match"),
        "metrics.interval": ("30", "at '/metrics/interval': '30' does not match"),
        "metrics.labels": ({"a": 1}, "at '/metrics/labels/a': got number, want string"),
        "metrics.serviceMonitor.enabled": (1, "at '/metrics/serviceMonitor/enabled': got number"),
        "metrics.podMonitor.enabled": ("", "at '/metrics/podMonitor/enabled': got string"),
        "metrics.rules.enabled": ([], "at '/metrics/rules/enabled': got array"),
        "metrics.rules.pages": ("wiki", "at '/metrics/rules/pages': 'wiki' does not match"),
        "metrics.dashboard.enabled": ("on", "at '/metrics/dashboard/enabled': got string"),
        "dashboard.enabled": (1, "at '/dashboard/enabled': got number, want boolean"),
        "dashboard.tlsSecret": ("A", "at '/dashboard/tlsSecret': 'A' does not match"),
        "dashboard.service.type": ("ExternalName", "at '/dashboard/service/type': value must be one of"),
        "dashboard.service.nodePort": (0, "at '/dashboard/service/nodePort': minimum: got 0, want 1"),
        "gateway.enabled": ("on", "at '/gateway/enabled': got string, want boolean"),
        "gateway.url": ("http://hub.example", "at '/gateway/url': 'http://hub.example' does not match"),
        "gateway.ca": (1, "at '/gateway/ca': got number, want string"),
        "gateway.keySecret": ("A", "at '/gateway/keySecret': 'A' does not match"),
        "gateway.replicas": (0, "at '/gateway/replicas': minimum: got 0, want 1"),
        "gateway.tlsSecret": ("A", "at '/gateway/tlsSecret': 'A' does not match"),
        "gateway.limits.openRequests": (0, "at '/gateway/limits/openRequests': minimum: got 0, want 1"),
        "gateway.limits.requestsPerSecond": (0, "at '/gateway/limits/requestsPerSecond': exclusiveMinimum"),
        "gateway.limits.bodyGiB": (0.5, "at '/gateway/limits/bodyGiB': got number, want integer"),
        "gateway.resources": ({"limit": {}}, "at '/gateway/resources': additional properties 'limit'"),
        **wrong_pod_values("gateway."),
        "gateway.service.type": ("ExternalName", "at '/gateway/service/type': value must be one of"),
        "gateway.service.nodePort": ("any", "at '/gateway/service/nodePort': got string"),
        "gateway.service.annotations": (
            {"a": 1},
            "at '/gateway/service/annotations/a': got number, want string",
        ),
        "gateway.ingress.enabled": ("on", "at '/gateway/ingress/enabled': got string, want boolean"),
        "gateway.ingress.className": (1, "at '/gateway/ingress/className': got number, want string"),
        "gateway.ingress.annotations": (
            {"a": 1},
            "at '/gateway/ingress/annotations/a': got number, want string",
        ),
        "gateway.ingress.tlsSecret": ("A", "at '/gateway/ingress/tlsSecret': 'A' does not match"),
        "gateway.httpRoute.enabled": (1, "at '/gateway/httpRoute/enabled': got number, want boolean"),
        "gateway.httpRoute.parentRefs": (
            "edge",
            "at '/gateway/httpRoute/parentRefs': got string, want array",
        ),
        "crds.keep": ("no", "at '/crds/keep': got string, want boolean"),
    },
    SILO: {
        "global.registry": ("a b", "at '/global/registry': 'a b' does not match"),
        "commonLabels": ({"a": 1}, "at '/commonLabels/a': got number, want string"),
        "name": ("North", "at '/name': 'North' does not match"),
        "labels": ({"region": "a b"}, "at '/labels/region': 'a b' does not match"),
        "operatorNamespace": ("", "at '/operatorNamespace': '' does not match"),
        "signingKey.create": (None, "at '/signingKey': missing property 'create'"),
        "datasets": ([], "at '/datasets': minItems: got 0, want 1"),
        "agent.resources": ({"limit": {}}, "at '/agent/resources': additional properties 'limit'"),
        "agent.nprocPerNode": (0, "at '/agent/nprocPerNode': minimum: got 0, want 1"),
        "agent.nodeSelector": ({"gpu": True}, "at '/agent/nodeSelector/gpu': got boolean, want string"),
        "agent.tolerations": ([{"taint": "x"}], "at '/agent/tolerations/0': additional properties 'taint'"),
        "agent.runtimeClassName": ("K", "at '/agent/runtimeClassName': 'K' does not match"),
        "agent.storage.size": ("big", "at '/agent/storage/size': 'big' does not match"),
        "agent.storage.storageClassName": (1, "at '/agent/storage/storageClassName': got number"),
        "agent.guardImage": ("", "at '/agent/guardImage': '' does not match"),
        "agent.imagePullSecrets": (["A"], "at '/agent/imagePullSecrets/0': 'A' does not match"),
        "agent.guardResources": ({"limit": {}}, "at '/agent/guardResources': additional properties 'limit'"),
        "agent.podTemplate": ({"volumes": []}, "at '/agent/podTemplate': additional properties 'volumes'"),
        "policy.methods": ("fedavg", "at '/policy/methods': got string, want null or array"),
        "policy.transforms": ("signs", "at '/policy/transforms': got string, want null or array"),
        "policy.payloadKinds": (["data"], "at '/policy/payloadKinds/0': value must be one of 'model'"),
        "policy.minSamplesPerClass": (0, "at '/policy/minSamplesPerClass': minimum: got 0, want 1"),
        "policy.minSamplesPerFeature": (0, "at '/policy/minSamplesPerFeature': minimum: got 0, want 1"),
        "policy.minSamplesPerUpdate": (0, "at '/policy/minSamplesPerUpdate': minimum: got 0, want 1"),
        "policy.personalAccuracy": ("Told", "at '/policy/personalAccuracy': value must be one of 'Withheld'"),
        "policy.scores": ("Told", "at '/policy/scores': value must be one of 'Mean'"),
        "policy.maxBytesPerRound": ("much", "at '/policy/maxBytesPerRound': 'much' does not match"),
        "policy.maxBytesPerJob": ("all", "at '/policy/maxBytesPerJob': 'all' does not match"),
        "policy.jobNamespaces": ([""], "at '/policy/jobNamespaces/0': '' does not match"),
        "policy.trainerImages": (["r/t:1"], "at '/policy/trainerImages/0': 'r/t:1' does not match"),
        "policy.metadataKeys": ("team", "at '/policy/metadataKeys': got string, want null or array"),
        "policy.maxRounds": (1.5, "at '/policy/maxRounds': got number, want null or integer"),
        "policy.maxAnsweredRounds": (0, "at '/policy/maxAnsweredRounds': minimum: got 0, want 1"),
        "policy.minSilos": (0, "at '/policy/minSilos': minimum: got 0, want 1"),
        "policy.privacyBudget": ([], "at '/policy/privacyBudget': minItems: got 0, want 1"),
        "policy.notBefore": ("2026-07-01", "at '/policy/notBefore': '2026-07-01' does not match"),
        "policy.notAfter": ("never", "at '/policy/notAfter': 'never' does not match"),
        "policy.manualApproval": ("yes", "at '/policy/manualApproval': got string, want boolean"),
        "metrics.from": ("a:b", "at '/metrics/from': 'a:b' does not match"),
        "metrics.interval": ("often", "at '/metrics/interval': 'often' does not match"),
        "metrics.labels": (["a"], "at '/metrics/labels': got array, want object"),
        "metrics.podMonitor.enabled": ("on", "at '/metrics/podMonitor/enabled': got string"),
        "quota": ({"pods": True}, "at '/quota/pods': got boolean, want number or string"),
        "testImage": (None, "at '': missing property 'testImage'"),
        "imagePullSecrets": (["A"], "at '/imagePullSecrets/0': 'A' does not match"),
        "platform": (None, "at '': missing property 'platform'"),
        "images.pullPolicy": ("Sometimes", "at '/images/pullPolicy': value must be one of"),
        "images.operator.repository": ("r/op:1", "at '/images/operator/repository': 'r/op:1' does not match"),
        "images.operator.tag": (1.0, "at '/images/operator/tag': got number, want string"),
        "images.operator.digest": ("abc", "at '/images/operator/digest': 'abc' does not match"),
        "images.guard.repository": ("", "at '/images/guard/repository': '' does not match"),
        "images.guard.tag": ("-", "at '/images/guard/tag': '-' does not match"),
        "images.guard.digest": (True, "at '/images/guard/digest': got boolean, want string"),
        "images.trainer.repository": ("R", "at '/images/trainer/repository': 'R' does not match"),
        "images.trainer.tag": ([], "at '/images/trainer/tag': got array, want string"),
        "images.trainer.digest": (1, "at '/images/trainer/digest': got number, want string"),
        "connector.replicas": (0, "at '/connector/replicas': minimum: got 0, want 1"),
        "connector.resources": (
            {"limits": {"memory": "lots"}},
            "at '/connector/resources/limits/memory': 'lots' does not match",
        ),
        **wrong_pod_values("connector."),
        "proxy.url": ("http://user:password@proxy.example:3128", "at '/proxy/url': 'http://user"),
        "proxy.noProxy": ("a, b", "at '/proxy/noProxy': 'a, b' does not match"),
        "proxy.secret": ("A", "at '/proxy/secret': 'A' does not match"),
        "proxy.authorities": ("ca.crt", "at '/proxy/authorities': 'ca.crt' does not match"),
        "egress.networks": (["hub.example"], "at '/egress/networks/0': 'hub.example' does not match"),
        "apiServer.ports": ([0], "at '/apiServer/ports/0': minimum: got 0, want 1"),
        "crds.install": ("no", "at '/crds/install': got string, want boolean"),
    },
}
"""A wrong value for each, and what is said about it."""

COMBINED_VALUES: list[tuple[Values, str]] = [
    (
        {"labels": {"app.kubernetes.io/name": "x"}},
        "labels: app.kubernetes.io/name is set by the release itself",
    ),
    (
        {"quota": {"limits.cpu": 4}},
        "quota: limits.cpu would refuse every guard, which has no limit of cpu; set agent",
    ),
    (
        {"quota": {"limits.cpu": 4}, "agent": {"guardResources": {"limits": {"cpu": 1}}}},
        "quota: limits.cpu would refuse every trainer, which has no limit of cpu; set agent.resources.limits.cpu",
    ),
    (
        {"global": {"registry": ""}},
        "images.guard.repository: fedsilo-guard names no registry, so that each node",
    ),
    (
        {"testImage": "python:3"},
        "testImage: python:3 names no registry, so that each node would take one of its own",
    ),
    ({"agent": {"guardImage": "r/guard:7"}}, "agent.guardImage: r/guard:7 names no registry"),
    (
        {"commonLabels": {"a": "b"}, "labels": {"a": "c"}},
        "labels: a is in commonLabels too; write it in one of them",
    ),
    (
        {"connector": {"podAnnotations": {"fedsilo.io/proxy": "x"}}},
        "fedsilo.io/proxy is set by the release itself",
    ),
    ({"quota": {"requests.memory": "8Gi"}}, "set agent.resources.requests.memory"),
    ({"quota": {"cpu": 4}, "agent": {"resources": None}}, "set agent.resources.requests.cpu"),
    ({"policy": {"approvals": []}}, "at '/policy': additional properties 'approvals' not allowed"),
    (
        {"metrics": {"from": ""}},
        "metrics.podMonitor: nobody may ask the guards; name in metrics.from who may",
    ),
    ({"datasets": [{"name": "x", "loader": "npz", "volume": {"pvc": "y"}}]}, "properties 'pvc' not allowed"),
    ({"proxy": {"secret": "login"}}, "proxy.secret: network policies need host and port of the proxy"),
]
"""Values of a silo that are wrong beside each other, or deep inside."""

COMBINED_OPERATOR_VALUES: list[tuple[Values, str]] = [
    (
        {"global": {"registry": ""}},
        "fedsilo-operator names no registry, so that each node would take one of its own; set global.registry",
    ),
    ({"commonLabels": {"helm.sh/chart": "x"}}, "commonLabels: helm.sh/chart is set by the release itself"),
    (
        {"podLabels": {"app.kubernetes.io/name": "x"}},
        "podLabels: app.kubernetes.io/name is set by the release",
    ),
    (
        {"commonLabels": {"a": "b"}, "metrics": {"labels": {"a": "c"}}},
        "metrics.labels: a is in commonLabels too; write it in one of them",
    ),
    (
        {"gateway": {"service": {"nodePort": 30443, "type": "ClusterIP"}}},
        "gateway.service.nodePort: a Service of type ClusterIP has no port of nodes; set gateway.service.type to",
    ),
]
"""Values of the operator's chart that are wrong beside each other."""
