"""Jobs whose pods cannot start or do not live: each ends or waits with words that name the silo and the remedy.

All are applied together and go wrong side by side; each test then looks at its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.methods.registry import names
from hack.cluster.kubectl import Kubectl
from hack.images import TOOLBOX
from tests.cluster.consortium import Consortium, golden, new_consortium
from tests.cluster.federation import END_SECONDS
from tests.cluster.namespace import Namespace, pod, wait_until
from tests.cluster.test_workloads import ENDLESS_COMMAND

EXPECTED_TEXTS = golden(Path(__file__).with_name("bad_jobs.golden"))

UNREACHABLE_IMAGE = "localhost/nowhere:1"
"""An image that no registry has."""

GPUS = "nvidia.com/gpu"
ALL_SILOS = 4
"""GPUs of the test cluster's node."""

NOWHERE_READ = {
    "name": "digits",
    "loader": "npz",
    "config": {"path": "digits/missing.npz"},
    "volume": {"persistentVolumeClaim": "scans"},
}

SILOS: dict[str, dict[str, Any]] = {
    "clinic/sound": {},
    "clinic/any-method": {"policy": {"methods": None}},
    "hospital/sound-too": {},
    "clinic/no-guard": {"agent": {"guardImage": UNREACHABLE_IMAGE}},
    "clinic/greedy": {"agent": {"resources": {"limits": {GPUS: str(ALL_SILOS)}}}},
    "clinic/no-data": {"datasets": [NOWHERE_READ]},
    "clinic/cramped": {"agent": {"resources": {"limits": {"memory": "64Mi"}}}},
}

JOBS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "no-guard": (("clinic/no-guard",), {}),
    "no-trainer": (("clinic/sound",), {"agents": {"image": UNREACHABLE_IMAGE}}),
    "no-aggregator": (("clinic/sound", "hospital/sound-too"), {"aggregator": {"image": UNREACHABLE_IMAGE}}),
    "no-gpu": (("clinic/greedy",), {}),
    "no-data": (("clinic/no-data",), {}),
    "no-memory": (("clinic/cramped",), {"backoffLimit": 1}),
    "no-method": (("clinic/any-method",), {"method": {"name": "fedavgg"}}),
}


@pytest.fixture(scope="module")
def consortium(kubectl: Kubectl, operator: Namespace) -> Iterator[Consortium]:
    """All the jobs, under way. One GPU is taken by somebody else."""
    with new_consortium(kubectl, "clinic", "hospital") as made:
        other = pod("other", TOOLBOX, ENDLESS_COMMAND, resources={"limits": {GPUS: "1"}})
        made.jobs.apply(other)
        made.jobs.wait("pod", "other", "condition=Ready")
        kubectl.apply(*(made.silo(*silo.split("/"), **spec) for silo, spec in SILOS.items()))
        kubectl.apply(*(made.job(name, *silos, **spec) for name, (silos, spec) in JOBS.items()))
        yield made


def test_gpus_that_are_taken_and_become_free(consortium: Consortium) -> None:
    assert (
        consortium.condition_report("no-gpu", "SilosReady", "False", "Unschedulable")
        == EXPECTED_TEXTS["GPUs"]
    )
    consortium.jobs.delete("pod", "other")
    consortium.wait_for_condition("no-gpu", "Complete", "True", "Complete")
    _nothing_runs(consortium, "no-gpu")


def test_data_whose_volume_is_missing_and_then_its_file(consortium: Consortium) -> None:
    """No second try would find the file. Its name stays in the silo, in the log."""
    said = consortium.condition_report("no-data", "SilosReady", "False", "VolumeMissing")
    assert said == EXPECTED_TEXTS["volume of the data"]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "scans"}}
    consortium.institution("clinic").apply(claim | {"spec": spec})
    assert (
        consortium.condition_report("no-data", "Failed", "True", "QuorumLost")
        == EXPECTED_TEXTS["file of the data"]
    )
    assert _failure(consortium, "no-data") == "DataInvalid"
    assert _trainers(consortium, "no-data") == 1
    where = ("no-data", "-n", consortium.jobs.name, "--silo", "no-data", "--component", "trainer")
    assert "'/data/digits/missing.npz' is not a file" in consortium.kubectl.fedsilo("logs", *where)
    _nothing_runs(consortium, "no-data")


def test_a_guard_whose_image_is_missing(consortium: Consortium) -> None:
    assert (
        consortium.condition_report("no-guard", "SilosReady", "False", "ImageNotFound")
        == EXPECTED_TEXTS["guard's image"]
    )


def test_a_trainer_whose_image_is_missing(consortium: Consortium) -> None:
    said = consortium.condition_report("no-trainer", "SilosReady", "False", "ImageNotFound")
    assert said == EXPECTED_TEXTS["trainer's image"]


def test_a_method_that_nobody_knows(consortium: Consortium) -> None:
    """Another image could have it, so those of the pods decide; whichever of them is first ends the job."""
    consortium.wait_for_condition("no-method", "Accepted", "Unknown", "Unverified")
    consortium.jobs.wait("federatedjob", "no-method", "condition=Failed", END_SECONDS)
    failed = consortium.condition("no-method", "Failed")
    assert failed["reason"] in ("ManifestInvalid", "QuorumLost")
    assert "(ManifestInvalid)" in failed["message"]
    why = consortium.kubectl.fedsilo("why", "no-method", "-n", consortium.jobs.name)
    assert f"Method fedavgg is not installed in this operator, which knows {', '.join(names())}" in why
    assert "correct spec.method.name in a new job" in why
    _nothing_runs(consortium, "no-method")


def test_a_trainer_with_too_little_memory(consortium: Consortium) -> None:
    """The trainer is tried again as often as the job says."""
    assert (
        consortium.condition_report("no-memory", "Failed", "True", "QuorumLost") == EXPECTED_TEXTS["memory"]
    )
    assert _failure(consortium, "no-memory") == "OutOfMemory"
    assert _trainers(consortium, "no-memory") == 2
    _nothing_runs(consortium, "no-memory")


def test_an_aggregator_whose_image_is_missing_and_an_institution_that_goes_meanwhile(
    consortium: Consortium,
) -> None:
    said = consortium.condition_report("no-aggregator", "Running", "False", "ImageNotFound")
    assert said == EXPECTED_TEXTS["aggregator's image"]
    consortium.wait_for_condition("no-aggregator", "SilosReady", "True", "Running")
    consortium.kubectl.run("delete", "namespace", consortium.institution("hospital").name, "--wait=false")
    said = consortium.condition_report("no-aggregator", "SilosReady", "False", "SiloNotFound")
    assert said == EXPECTED_TEXTS["institution that goes"]


def _nothing_runs(consortium: Consortium, job: str) -> None:
    """Whatever went wrong, the pods of a job that is over are gone or done."""
    wait_until(lambda: not _active_pods(consortium, job), f"the pods of {job} to end")


def _failure(consortium: Consortium, job: str) -> str:
    """Why the clinic's agent failed, in one word."""
    agent = consortium.agent("clinic", job)
    assert agent is not None
    (found,) = (item for item in agent["status"]["conditions"] if item["type"] == "Failed")
    return str(found["reason"])


def _trainers(consortium: Consortium, job: str) -> int:
    """Trainers that the clinic has started, whether they are still there or not."""
    labels = f"fedsilo.io/job-name={job},app.kubernetes.io/component=trainer"
    (trainer,) = consortium.institution("clinic").select("jobs", labels)
    return sum(int(trainer["status"].get(name, 0)) for name in ("failed", "active", "succeeded"))


def _active_pods(consortium: Consortium, job: str) -> list[Object]:
    return [one for one in consortium.pods(job) if one["status"]["phase"] not in ("Succeeded", "Failed")]
