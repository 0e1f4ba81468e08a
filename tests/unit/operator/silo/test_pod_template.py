"""What a silo's template gives the pods of guard and trainer, and what a job may add."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedsilo.api.agent import SiloAgent
from fedsilo.api.loading import load
from fedsilo.api.observed import Object
from fedsilo.api.proposal import propose
from fedsilo.api.silo import Silo
from fedsilo.silo.objections import objections
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.workloads.agent import GUARD, TRAINER, ParsedAgent, guard_job, trainer_job
from tests.pages import blocks
from tests.unit.operator.silo.harness import SETTINGS, START, agent, job_spec, silo

QUEUE = "kueue.x-k8s.io/queue-name"
ZONE = "topology.kubernetes.io/zone"
OF_TRAINERS = {"matchLabels": {"app.kubernetes.io/component": "trainer"}}
NEIGHBOUR_TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": OF_TRAINERS}
IN_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": OF_TRAINERS,
}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {QUEUE: "gpus", "team": "radiology"}, "annotations": {"example.com/cost": "4711"}},
    "priorityClassName": "research",
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": IN_ZONE},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEIGHBOUR_TERM]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEIGHBOUR_TERM]},
    },
    "topologySpreadConstraints": [SPREAD],
}
OF_JOB = {"labels": {"study": "lungs", "team": "of the job"}, "annotations": {"example.com/study": "lungs"}}


def jobs(
    template: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    settings: SiloSettings = SETTINGS,
) -> dict[str, Object]:
    asked = {} if metadata is None else {"agents": {"podTemplate": {"metadata": metadata}}}
    owner = agent(job_spec(**asked))
    parsed = ParsedAgent(
        SiloAgent.model_validate(owner), Silo.model_validate(silo(policy, template=template)), owner
    )
    return {TRAINER: trainer_job(parsed, settings), GUARD: guard_job(parsed, settings)}


def pod(job: Object) -> dict[str, Any]:
    return dict(job["spec"]["template"]["spec"])


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_labels_and_annotations_reach_the_job_and_its_pod(component: str) -> None:
    plain = jobs({})[component]
    made = jobs({"podTemplate": TEMPLATE}, OF_JOB | {"labels": {"study": "lungs", "team": "job"}})[component]
    for metadata, before in (
        (made["metadata"], plain["metadata"]),
        (made["spec"]["template"]["metadata"], plain["spec"]["template"]["metadata"]),
    ):
        labels = {"study": "lungs", QUEUE: "gpus", "team": "radiology"}
        assert metadata["labels"] == labels | before["labels"], (
            "where both have a key, the silo's value counts"
        )
        assert metadata["annotations"] == {"example.com/study": "lungs", "example.com/cost": "4711"}
        assert "annotations" not in before


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_both_pods_have_the_priority_and_run_on_the_nodes_of_the_template(component: str) -> None:
    beside = {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "disk", "operator": "Exists"}]}
    made = pod(jobs(beside | {"podTemplate": TEMPLATE})[component])
    assert made["priorityClassName"] == "research"
    assert made["nodeSelector"] == {"disk": "fast", "pool": "gpu"}
    assert [each["key"] for each in made["tolerations"]] == ["disk", "gpu"]


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_the_operators_class_is_for_pods_whose_silo_names_none(component: str) -> None:
    settings = replace(SETTINGS, priority_class="fedsilo-jobs")
    assert pod(jobs({}, settings=settings)[component])["priorityClassName"] == "fedsilo-jobs"
    named = jobs({"podTemplate": TEMPLATE}, settings=settings)[component]
    assert pod(named)["priorityClassName"] == "research"
    assert "priorityClassName" not in pod(jobs({})[component])


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_nothing_of_a_template_changes_what_a_pod_may_do(component: str) -> None:
    plain, made = pod(jobs({})[component]), pod(jobs({"podTemplate": TEMPLATE})[component])
    placement = {"affinity", "topologySpreadConstraints", "nodeSelector", "tolerations", "priorityClassName"}
    assert {name: made[name] for name in made.keys() - placement} == {
        name: plain[name] for name in plain.keys() - placement
    }


@pytest.mark.parametrize(
    "policy", [None, {"privacyBudget": [{"dataset": "scans", "epsilon": 1, "delta": 0.1}]}]
)
def test_a_trainers_neighbours_are_those_of_template_and_operator(policy: dict[str, Any] | None) -> None:
    """The volumes that guard and ledgers share do not move for a template."""
    plain = pod(jobs({}, policy=policy)[TRAINER])["affinity"]["podAffinity"]
    made = pod(jobs({"podTemplate": TEMPLATE}, policy=policy)[TRAINER])
    required, preferred = (
        f"{name}DuringSchedulingIgnoredDuringExecution" for name in ("required", "preferred")
    )
    assert made["affinity"] == {
        "nodeAffinity": TEMPLATE["affinity"]["nodeAffinity"],
        "podAntiAffinity": TEMPLATE["affinity"]["podAntiAffinity"],
        "podAffinity": {
            required: [*plain.get(required, []), NEIGHBOUR_TERM],
            preferred: plain[preferred],
        },
    }
    assert made["topologySpreadConstraints"] == [SPREAD]


def test_a_guard_follows_its_trainer_wherever_that_is() -> None:
    """Two pods with one constraint each could be kept apart, and they share a volume."""
    made = pod(jobs({"podTemplate": TEMPLATE})[GUARD])
    assert made["affinity"] == pod(jobs({})[GUARD])["affinity"]
    assert "topologySpreadConstraints" not in made


@pytest.mark.parametrize(
    ("given", "resources"),
    [
        ({}, {"requests": {"cpu": "100m", "memory": "128Mi"}}),
        (
            {"limits": {"cpu": 1, "memory": "1Gi"}},
            {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        ),
        (
            {"limits": {"cpu": "50m"}, "requests": {"memory": "256Mi", "ephemeral-storage": "1Gi"}},
            {
                "requests": {"cpu": "50m", "memory": "256Mi", "ephemeral-storage": "1Gi"},
                "limits": {"cpu": "50m"},
            },
        ),
    ],
)
def test_a_guard_has_the_resources_that_a_quota_demands(
    given: dict[str, Any], resources: dict[str, Any]
) -> None:
    (container,) = pod(jobs({"guardResources": given})[GUARD])["containers"]
    assert container["resources"] == resources


def test_every_container_of_a_silo_has_limits_where_its_quota_demands_them() -> None:
    limits = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "4Gi"}
    made = jobs({"resources": {"limits": limits}, "guardResources": {"limits": limits}})
    for job in made.values():
        for container in (*pod(job)["containers"], *pod(job).get("initContainers", ())):
            assert container["resources"]["limits"] == limits


def test_the_manifest_of_the_page_is_what_it_says(tmp_path: Path) -> None:
    (shown,) = blocks("docs/pod-templates.md", "yaml")
    (tmp_path / "lungs.yaml").write_text(shown)
    assert load(tmp_path / "lungs.yaml").job.metadata.name == "lungs"
    job, offer = yaml.safe_load_all(shown)
    owner = agent(job["spec"])
    one, its_silo = SiloAgent.model_validate(owner), Silo.model_validate(offer)
    proposal = propose(one.spec, SETTINGS.trainer_image, SETTINGS.guard_image)
    assert not [
        objection.message
        for objection in objections(one, its_silo, proposal, START, has_begun=False)
        if "metadataKeys" in objection.message
    ]
    parsed = ParsedAgent(one, its_silo, owner)
    for made in (trainer_job(parsed, SETTINGS), guard_job(parsed, SETTINGS)):
        assert (
            made["metadata"]["labels"].items()
            >= {QUEUE: "gpus", "cost-centre": "4711", "study": "lungs"}.items()
        )
        for container in (*pod(made)["containers"], *pod(made).get("initContainers", ())):
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
