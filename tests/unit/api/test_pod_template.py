"""What a platform may ask of pods, and what stays the operator's alone."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fedsilo.api.digest import spec_digest
from fedsilo.api.faults import dotted_path
from fedsilo.api.job import AgentsSpec, AggregatorSpec, FederatedJobSpec
from fedsilo.api.messages import faults_of
from fedsilo.api.pod_template import PodMetadata, PodTemplate
from fedsilo.api.silo import SiloAgentTemplate
from tests.unit.operator.silo.harness import job_spec

ZONE = "topology.kubernetes.io/zone"


def lines(model: type[Any], document: dict[str, Any]) -> list[str]:
    """What is said of each fault of a part of a document."""
    try:
        model.model_validate(document)
    except ValidationError as error:
        return [
            f"{fault.path}: {fault.problem}; {fault.remedy}"
            for fault in faults_of(error, model, file="m.yaml", document="document 1")
        ]
    return []


@pytest.mark.parametrize(
    "key",
    [
        "fedsilo.io/job-uid",
        "app.kubernetes.io/component",
        "app.kubernetes.io/team",
        "batch.kubernetes.io/job-name",
        "job-name",
        "controller-uid",
    ],
)
@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_keys_by_which_pods_are_known_are_not_for_templates(part: str, key: str) -> None:
    (said,) = lines(PodMetadata, {part: {"team": "blue", key: "x"}})
    assert (
        said
        == f"{dotted_path([part, key])}: is a key of the operator's or of Kubernetes' own; use another key"
    )


@pytest.mark.parametrize(
    "key",
    [
        "container.apparmor.security.beta.kubernetes.io/trainer",
        "seccomp.security.alpha.kubernetes.io/pod",
        "k8s.v1.cni.cncf.io/networks",
        "v1.multus-cni.io/default-network",
        "io.katacontainers.config.hypervisor.kernel_params",
        "io.kubernetes.cri-o.userns-mode",
    ],
)
def test_an_annotation_cannot_loosen_how_a_pod_is_confined(key: str) -> None:
    (said,) = lines(PodMetadata, {"annotations": {key: "unconfined"}})
    assert said.endswith("would change how the pod is confined; remove it")


@pytest.mark.parametrize("key", ["", "a b", "/x", "x/", "a/b/c", "-x", "x" * 64])
def test_what_is_no_key_is_refused_where_it_is_written(key: str) -> None:
    (said,) = lines(PodMetadata, {"labels": {key: "x"}})
    assert "is no key of labels and annotations; write letters" in said


def test_a_label_of_a_queue_a_team_and_a_cost_centre_are_permitted() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team", "team": "blue", "example.com/cost-centre": "4711"}
    notes = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "example.com/note": "a b\nc"}
    assert lines(PodMetadata, {"labels": labels, "annotations": notes}) == []
    assert PodMetadata(labels=labels, annotations=notes | {"team": "x"}).keys == [*labels, *notes]
    assert lines(PodMetadata, {"labels": {"team": "blue and red"}}) != []


@pytest.mark.parametrize(
    "field",
    [
        *("securityContext", "serviceAccountName", "automountServiceAccountToken", "volumes", "containers"),
        *("hostNetwork", "hostPID", "shareProcessNamespace", "initContainers", "hostAliases", "spec"),
    ],
)
def test_what_a_pod_may_do_is_no_part_of_a_template(field: str) -> None:
    (said,) = lines(PodTemplate, {field: {}})
    assert said.startswith(f"{field}: is not a known field")


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_priorities_of_the_clusters_own_parts_are_refused(name: str) -> None:
    (said,) = lines(PodTemplate, {"priorityClassName": name})
    assert said == (
        "priorityClassName: is for the cluster's own parts; name a PriorityClass of the platform's"
    )
    assert lines(PodTemplate, {"priorityClassName": "research-low"}) == []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ({"key": ZONE, "operator": "In"}, "values: is empty, and In compares with it; list values"),
        (
            {"key": ZONE, "operator": "Exists", "values": ["a"]},
            "values: has no meaning for Exists; remove it",
        ),
        (
            {"key": "memory", "operator": "Gt", "values": ["40G"]},
            'values: is not one whole number, which Gt compares with; write one, such as ["40000"]',
        ),
        ({"key": ZONE, "operator": "Near", "values": ["a"]}, "operator: is not a known choice"),
    ],
)
def test_an_affinity_that_no_api_server_takes_is_refused(expression: dict[str, Any], said: str) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    (found,) = lines(PodTemplate, {"affinity": affinity})
    path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    assert found.startswith(f"{path}.matchExpressions[0].{said}")


def test_a_node_selector_stands_in_one_place() -> None:
    template = {
        "nodeSelector": {"pool": "gpu", "disk": "fast"},
        "podTemplate": {"nodeSelector": {"pool": "cpu"}},
    }
    (said,) = lines(SiloAgentTemplate, template)
    assert said == "podTemplate.nodeSelector.pool: is gpu in nodeSelector; remove one"
    template["podTemplate"] = {"nodeSelector": {"pool": "gpu", "zone": "a"}, "tolerations": [{"key": "b"}]}
    both = SiloAgentTemplate.model_validate(template | {"tolerations": [{"key": "a"}]}).pods
    assert both.node_selector == {"pool": "gpu", "disk": "fast", "zone": "a"}
    assert [each.key for each in both.tolerations or ()] == ["a", "b"]


def test_a_job_without_templates_is_the_job_that_it_was() -> None:
    """What is null makes no other digest, so that jobs go on over an upgrade."""
    plain = FederatedJobSpec.model_validate(job_spec())
    null = FederatedJobSpec.model_validate(
        job_spec(aggregator={"podTemplate": None}, agents={"podTemplate": None})
    )
    labelled = FederatedJobSpec.model_validate(
        job_spec(agents={"podTemplate": {"metadata": {"labels": {"team": "blue"}}}})
    )
    assert spec_digest(plain) == spec_digest(null) != spec_digest(labelled)


@pytest.mark.parametrize(
    "image",
    ["busybox", "fedsilo-trainer:0.1.0", "library/busybox", "a/b:1", f"a/b@sha256:{'0' * 64}"],
)
@pytest.mark.parametrize(
    ("owner", "field"), [(AggregatorSpec, "image"), (AgentsSpec, "image"), (SiloAgentTemplate, "guardImage")]
)
def test_an_image_names_its_registry(owner: type[Any], field: str, image: str) -> None:
    (said,) = lines(owner, {field: image})
    assert said == (
        f"{field}: names no registry, so that each node takes one of its own; write it before the name, such as "
        "registry.example/fedsilo-trainer:0.1.0"
    )


@pytest.mark.parametrize(
    "registry", ["registry.example", "registry.example:5000", "localhost", "mirror:5000"]
)
def test_any_registry_will_do(registry: str) -> None:
    assert lines(AgentsSpec, {"image": f"{registry}/team/fedsilo-trainer:0.1.0"}) == []
