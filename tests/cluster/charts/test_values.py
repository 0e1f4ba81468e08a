"""Every value of every chart changes something, and a wrong one is refused in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml

from charts.generate import documented
from fedsilo.api.invitation import SiloInvitation
from tests.cluster.charts.helm import OPERATOR, SILO, Helm, Values, invitation, merged, nested, quickstart

DIGEST = f"sha256:{'a' * 64}"

BASE: dict[Path, Values] = {
    OPERATOR: {
        "metrics": {"serviceMonitor": {"enabled": True}},
        "gateway": {
            "enabled": True,
            "url": "https://hub.example",
            "keySecret": "hub",
            "ingress": {"enabled": True},
            "httpRoute": {"enabled": True},
        },
    },
    SILO: {
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
"""Of a release in an institution's own cluster."""

OF_INSTITUTION = ("images", "connector", "proxy", "egress", "apiServer", "crds")
"""Values of the chart fedsilo-silo that are about such a release only."""

CHANGES: dict[Path, dict[str, tuple[object, str]]] = {
    OPERATOR: {
        "replicas": (4, "replicas: 4"),
        "images.operator.repository": ("r/one", "image: r/one:0.1.0"),
        "images.operator.tag": ("9", "image: fedsilo-operator:9"),
        "images.operator.digest": (DIGEST, f"image: fedsilo-operator@{DIGEST}"),
        "images.aggregator.repository": ("r/two", "--aggregator-image=r/two:0.1.0"),
        "images.aggregator.tag": ("9", "--aggregator-image=fedsilo-aggregator:9"),
        "images.aggregator.digest": (DIGEST, f"--aggregator-image=fedsilo-aggregator@{DIGEST}"),
        "images.guard.repository": ("r/three", "--guard-image=r/three:0.1.0"),
        "images.guard.tag": ("9", "--guard-image=fedsilo-guard:9"),
        "images.guard.digest": (DIGEST, f"--guard-image=fedsilo-guard@{DIGEST}"),
        "images.trainer.repository": ("r/four", "--trainer-image=r/four:0.1.0"),
        "images.trainer.tag": ("9", "--trainer-image=fedsilo-trainer:9"),
        "images.trainer.digest": (DIGEST, f"--trainer-image=fedsilo-trainer@{DIGEST}"),
        "imagePullSecrets": (["login"], "- name: login"),
        "resources": ({"limits": {"memory": "2Gi"}}, "memory: 2Gi"),
        "apiServer.ports": ([8443], "--api-server-ports=8443"),
        "jobNamespaces": (["research"], "namespace: research"),
        "metrics.enabled": (False, ""),
        "metrics.from": ("team=watch,a.b/c=d", "--metrics-from=team=watch,a.b/c=d"),
        "metrics.interval": ("7s", "interval: 7s"),
        "metrics.labels": ({"release": "prometheus"}, "release: prometheus"),
        "metrics.serviceMonitor.enabled": (False, ""),
        "metrics.podMonitor.enabled": (True, "kind: PodMonitor"),
        "metrics.rules.enabled": (True, "alert: FedsiloRoundStalled"),
        "metrics.dashboard.enabled": (True, 'grafana_dashboard: "1"'),
        "dashboard.enabled": (False, ""),
        "dashboard.tlsSecret": ("wildcard", "secretName: wildcard"),
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
        "gateway.service.type": ("LoadBalancer", "type: LoadBalancer"),
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
        "name": ("south", "name: south"),
        "labels": ({"region": "south"}, "region: south"),
        "operatorNamespace": ("elsewhere", "namespace: elsewhere"),
        "signingKey.create": (False, ""),
        "datasets": ([{"name": "scans", "loader": "imagefolder"}], "name: scans"),
        "agent.resources": ({"limits": {"nvidia.com/gpu": 3}}, '"nvidia.com/gpu":3'),
        "agent.nodeSelector": ({"pool": "gpu"}, 'nodeSelector: {"pool":"gpu"}'),
        "agent.tolerations": ([{"key": "gpu"}], 'tolerations: [{"key":"gpu"}]'),
        "agent.runtimeClassName": ("kata", 'runtimeClassName: "kata"'),
        "agent.storage.size": ("1Ti", '"size":"1Ti"'),
        "agent.storage.storageClassName": ("fast", '"storageClassName":"fast"'),
        "agent.guardImage": ("r/guard:7", 'guardImage: "r/guard:7"'),
        "policy.methods": (["fedavg"], 'methods: ["fedavg"]'),
        "policy.payloadKinds": (["model"], 'payloadKinds: ["model"]'),
        "policy.minSamplesPerClass": (20, "minSamplesPerClass: 20"),
        "policy.personalAccuracy": ("Withheld", 'personalAccuracy: "Withheld"'),
        "policy.maxBytesPerRound": (100_000_000, "maxBytesPerRound: 100000000"),
        "policy.maxBytesPerJob": ("2Gi", 'maxBytesPerJob: "2Gi"'),
        "policy.jobNamespaces": (["research"], 'jobNamespaces: ["research"]'),
        "policy.trainerImages": ([f"r/t@{DIGEST}"], f'trainerImages: ["r/t@{DIGEST}"]'),
        "policy.maxRounds": (7, "maxRounds: 7"),
        "policy.maxAnsweredRounds": (6, "maxAnsweredRounds: 6"),
        "policy.minSilos": (3, "minSilos: 3"),
        "policy.notBefore": ("2026-07-01T00:00:00Z", 'notBefore: "2026-07-01T00:00:00Z"'),
        "policy.notAfter": ("2026-12-31T23:59:59Z", 'notAfter: "2026-12-31T23:59:59Z"'),
        "policy.manualApproval": (True, "manualApproval: true"),
        "metrics.from": ("team=watch,a.b/c=d", 'a.b/c: "d"'),
        "metrics.interval": ("7s", "interval: 7s"),
        "metrics.labels": ({"release": "prometheus"}, "release: prometheus"),
        "metrics.podMonitor.enabled": (False, ""),
        "quota": ({"pods": 12}, 'pods: "12"'),
        "testImage": ("r/python:3", "image: r/python:3"),
        "imagePullSecrets": (["login"], "- name: login"),
        "images.operator.repository": ("r/one", "image: r/one:0.1.0"),
        "images.operator.tag": ("9", "image: fedsilo-operator:9"),
        "images.operator.digest": (DIGEST, f"image: fedsilo-operator@{DIGEST}"),
        "images.guard.repository": ("r/three", "--guard-image=r/three:0.1.0"),
        "images.guard.tag": ("9", "--guard-image=fedsilo-guard:9"),
        "images.guard.digest": (DIGEST, f"--guard-image=fedsilo-guard@{DIGEST}"),
        "images.trainer.repository": ("r/four", "--trainer-image=r/four:0.1.0"),
        "images.trainer.tag": ("9", "--trainer-image=fedsilo-trainer:9"),
        "images.trainer.digest": (DIGEST, f"--trainer-image=fedsilo-trainer@{DIGEST}"),
        "connector.replicas": (2, "replicas: 2"),
        "connector.resources": ({"limits": {"memory": "3Gi"}}, "memory: 3Gi"),
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

WRONG: dict[Path, dict[str, tuple[object, str]]] = {
    OPERATOR: {
        "replicas": (0, "at '/replicas': minimum: got 0, want 1"),
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
        "resources": ({"limits": {"memory": "lots"}}, "at '/resources/limits/memory': 'lots' does not match"),
        "apiServer.ports": ([0], "at '/apiServer/ports/0': minimum: got 0, want 1"),
        "jobNamespaces": (["A"], "at '/jobNamespaces/0': 'A' does not match"),
        "metrics.enabled": ("yes", "at '/metrics/enabled': got string, want boolean"),
        "metrics.from": ("", "at '/metrics/from': '' does not match"),
        "metrics.interval": ("30", "at '/metrics/interval': '30' does not match"),
        "metrics.labels": ({"a": 1}, "at '/metrics/labels/a': got number, want string"),
        "metrics.serviceMonitor.enabled": (1, "at '/metrics/serviceMonitor/enabled': got number"),
        "metrics.podMonitor.enabled": ("", "at '/metrics/podMonitor/enabled': got string"),
        "metrics.rules.enabled": ([], "at '/metrics/rules/enabled': got array"),
        "metrics.dashboard.enabled": ("on", "at '/metrics/dashboard/enabled': got string"),
        "dashboard.enabled": (1, "at '/dashboard/enabled': got number, want boolean"),
        "dashboard.tlsSecret": ("A", "at '/dashboard/tlsSecret': 'A' does not match"),
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
        "gateway.service.type": ("ExternalName", "at '/gateway/service/type': value must be one of"),
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
        "name": ("North", "at '/name': 'North' does not match"),
        "labels": ({"region": "a b"}, "at '/labels/region': 'a b' does not match"),
        "operatorNamespace": ("", "at '/operatorNamespace': '' does not match"),
        "signingKey.create": (None, "at '/signingKey': missing property 'create'"),
        "datasets": ([], "at '/datasets': minItems: got 0, want 1"),
        "agent.resources": ({"limit": {}}, "at '/agent/resources': additional properties 'limit'"),
        "agent.nodeSelector": ({"gpu": True}, "at '/agent/nodeSelector/gpu': got boolean, want string"),
        "agent.tolerations": ([{"taint": "x"}], "at '/agent/tolerations/0': additional properties 'taint'"),
        "agent.runtimeClassName": ("K", "at '/agent/runtimeClassName': 'K' does not match"),
        "agent.storage.size": ("big", "at '/agent/storage/size': 'big' does not match"),
        "agent.storage.storageClassName": (1, "at '/agent/storage/storageClassName': got number"),
        "agent.guardImage": ("", "at '/agent/guardImage': '' does not match"),
        "policy.methods": ("fedavg", "at '/policy/methods': got string, want null or array"),
        "policy.payloadKinds": (["data"], "at '/policy/payloadKinds/0': value must be one of 'model'"),
        "policy.minSamplesPerClass": (0, "at '/policy/minSamplesPerClass': minimum: got 0, want 1"),
        "policy.personalAccuracy": ("Told", "at '/policy/personalAccuracy': value must be one of 'Withheld'"),
        "policy.maxBytesPerRound": ("much", "at '/policy/maxBytesPerRound': 'much' does not match"),
        "policy.maxBytesPerJob": ("all", "at '/policy/maxBytesPerJob': 'all' does not match"),
        "policy.jobNamespaces": ([""], "at '/policy/jobNamespaces/0': '' does not match"),
        "policy.trainerImages": (["r/t:1"], "at '/policy/trainerImages/0': 'r/t:1' does not match"),
        "policy.maxRounds": (1.5, "at '/policy/maxRounds': got number, want null or integer"),
        "policy.maxAnsweredRounds": (0, "at '/policy/maxAnsweredRounds': minimum: got 0, want 1"),
        "policy.minSilos": (0, "at '/policy/minSilos': minimum: got 0, want 1"),
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

COMBINED: list[tuple[Values, str]] = [
    (
        {"labels": {"app.kubernetes.io/name": "x"}},
        "labels: app.kubernetes.io/name is set by the release itself",
    ),
    ({"quota": {"limits.cpu": 4}}, "quota: limits.cpu would refuse every guard"),
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


def base_of(chart: Path, path: str) -> Values:
    return INSTITUTION if chart == SILO and path.partition(".")[0] in OF_INSTITUTION else BASE[chart]


@cache
def rendered(chart: Path, path: str) -> str:
    return Helm().run("template", "north", str(chart), values=base_of(chart, path))


def cases(table: Mapping[Path, Mapping[str, tuple[object, str]]]) -> pytest.MarkDecorator:
    parameters = [
        pytest.param(chart, path, *case, id=f"{chart.name}-{path}")
        for chart, rows in table.items()
        for path, case in rows.items()
    ]
    return pytest.mark.parametrize(("chart", "path", "value", "text"), parameters)


@pytest.mark.parametrize("chart", [OPERATOR, SILO], ids=lambda chart: chart.name)
def test_the_tables_have_every_value(chart: Path) -> None:
    paths = [value.path for value in documented((chart / "values.yaml").read_text())]
    if chart == SILO:
        assert paths[: len(INVITATION)] == list(INVITATION)
        paths = paths[len(INVITATION) :]
    assert list(CHANGES[chart]) == list(WRONG[chart]) == paths


INVITATION = ("apiVersion", "kind", "hub", "silo", "token", "expires", "checksum")
"""Values that are the fields of an invitation, and only together."""


def test_the_values_of_an_invitation_are_its_fields() -> None:
    fields = [field.alias or name for name, field in SiloInvitation.model_fields.items()]
    assert fields == list(INVITATION)


@pytest.mark.parametrize("private", [False, True])
def test_an_invitation_that_is_as_it_was_printed_is_accepted(private: bool) -> None:
    """Helm computes the same checksum, with letters, too, that other encoders of JSON would escape."""
    values = BASE[SILO] | yaml.safe_load(invitation("default/north", private=private).to_yaml())
    assert "kind: Deployment" in Helm().run("template", "north", str(SILO), values=values)


@pytest.mark.parametrize("field", INVITATION)
def test_an_invitation_that_was_changed_by_a_letter_is_refused(field: str) -> None:
    changed = dict(INSTITUTION)
    if field == "hub":
        changed["hub"] = changed["hub"] | {"url": "https://hub.exemple:8443"}
    else:
        changed[field] = changed[field][:-1] + ("2" if changed[field][-1] != "2" else "3")
    said = Helm().refusal("template", "north", str(SILO), values=changed)
    assert f"at '/{field}'" in said if field in ("apiVersion", "kind") else "checksum: does not fit" in said
    without = {name: value for name, value in INSTITUTION.items() if name != field}
    assert "checksum: does not fit" in Helm().refusal("template", "north", str(SILO), values=without)


def test_an_invitation_is_for_one_namespace_and_one_name() -> None:
    said = Helm().refusal("template", "north", str(SILO), "-n", "elsewhere", values=INSTITUTION)
    assert "silo: the invitation is for default/north, and this is namespace elsewhere; install" in said
    said = Helm().refusal("template", "north", str(SILO), values=INSTITUTION | {"name": "south"})
    assert "name: is south, and the invitation is for default/north; remove name" in said


@cases(CHANGES)
def test_a_value_changes_something(chart: Path, path: str, value: object, text: str) -> None:
    before = rendered(chart, path)
    values = merged(base_of(chart, path), nested(path, value))
    after = Helm().run("template", "north", str(chart), values=values)
    if text:
        assert text not in before
        assert text in after
    else:
        assert len(after) < len(before)


@cases(WRONG)
def test_a_wrong_value_is_refused(chart: Path, path: str, value: object, text: str) -> None:
    values = merged(base_of(chart, path), nested(path, value))
    assert text in Helm().refusal("template", "north", str(chart), values=values)


@pytest.mark.parametrize(("values", "text"), COMBINED, ids=[text for _, text in COMBINED])
def test_values_that_do_not_go_together_are_refused(values: Values, text: str) -> None:
    assert text in Helm().refusal("template", "north", str(SILO), values=merged(BASE[SILO], values))


def test_aggregators_that_serve_nothing_cannot_be_watched() -> None:
    values = {"metrics": {"enabled": False, "podMonitor": {"enabled": True}}}
    said = Helm().refusal("template", "north", str(OPERATOR), values=values)
    assert "metrics.podMonitor: aggregators serve no metrics; set metrics.enabled, too" in said


@pytest.mark.parametrize("name", ["a" * 41, "1st", "a.b"])
def test_the_name_of_a_release_that_is_none_of_a_silo_is_refused(name: str) -> None:
    said = Helm().refusal("template", name, str(SILO), values=BASE[SILO])
    assert f"name: the release's name {name} cannot be that of a Silo" in said


def groups(content: Values, prefix: str = "") -> Iterator[str]:
    """The mappings of a values.yaml whose entries are values of their own."""
    yield prefix
    for name, value in content.items():
        path = f"{prefix}.{name}".strip(".")
        if isinstance(value, dict) and path not in (
            "labels",
            "quota",
            "agent.resources",
            "agent.nodeSelector",
            "metrics.labels",
            "gateway.service.annotations",
            "gateway.ingress.annotations",
            "hub",
        ):
            yield from groups(value, path)


def all_groups() -> list[tuple[Path, str]]:
    return [
        (chart, path)
        for chart in (OPERATOR, SILO)
        for path in groups(yaml.safe_load((chart / "values.yaml").read_text()))
        if not path.endswith(("resources.requests", "resources.limits"))
    ]


@pytest.mark.parametrize(("chart", "group"), all_groups())
def test_an_unknown_value_is_refused(chart: Path, group: str) -> None:
    values = merged(base_of(chart, group), nested(f"{group}.nonsense".strip("."), 1))
    said = Helm().refusal("template", "north", str(chart), values=values)
    assert (
        f"at '/{group.replace('.', '/')}': additional properties 'nonsense' not allowed".replace("'/'", "''")
        in said
    )


@pytest.mark.parametrize(
    ("chart", "path"),
    [
        (chart, path)
        for chart in (OPERATOR, SILO)
        for path in (*CHANGES[chart], *(group for where, group in all_groups() if where == chart and group))
    ],
)
def test_what_is_set_to_null_is_left_out_or_refused(chart: Path, path: str) -> None:
    """Helm takes null for "remove the default", which must never end in an error of a template."""
    values = merged(base_of(chart, path), nested(path, None))
    try:
        Helm().run("template", "north", str(chart), values=values)
    except AssertionError as refused:
        assert "missing property" in str(refused) or "got null" in str(refused)
