"""Jobs whose pods cannot start or do not live: each ends or waits with words that name the silo and the remedy.

All are applied together and go wrong side by side; each test then looks at its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.methods.registry import names
from hack.cluster.kubectl import Kubectl, Object
from hack.images import TOOLBOX
from tests.cluster.consortium import Consortium, consortium, golden
from tests.cluster.federation import END
from tests.cluster.namespace import Namespace, pod, until
from tests.cluster.test_workloads import FOREVER

EXPECTED = golden(Path(__file__).with_name("bad_jobs.golden"))

NOWHERE = "localhost/nowhere:1"
"""An image that no registry has."""

GPUS = "nvidia.com/gpu"
ALL = 4
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
    "clinic/no-guard": {"agent": {"guardImage": NOWHERE}},
    "clinic/greedy": {"agent": {"resources": {"limits": {GPUS: str(ALL)}}}},
    "clinic/no-data": {"datasets": [NOWHERE_READ]},
    "clinic/cramped": {"agent": {"resources": {"limits": {"memory": "64Mi"}}}},
}

JOBS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "no-guard": (("clinic/no-guard",), {}),
    "no-trainer": (("clinic/sound",), {"agents": {"image": NOWHERE}}),
    "no-aggregator": (("clinic/sound", "hospital/sound-too"), {"aggregator": {"image": NOWHERE}}),
    "no-gpu": (("clinic/greedy",), {}),
    "no-data": (("clinic/no-data",), {}),
    "no-memory": (("clinic/cramped",), {"backoffLimit": 1}),
    "no-method": (("clinic/any-method",), {"method": {"name": "fedavgg"}}),
}


@pytest.fixture(scope="module")
def place(kubectl: Kubectl, operator: Namespace) -> Iterator[Consortium]:
    """All the jobs, under way. One GPU is taken by somebody else."""
    with consortium(kubectl, "clinic", "hospital") as made:
        other = pod("other", TOOLBOX, FOREVER, resources={"limits": {GPUS: "1"}})
        made.jobs.apply(other)
        made.jobs.wait("pod", "other", "condition=Ready")
        kubectl.apply(*(made.silo(*silo.split("/"), **spec) for silo, spec in SILOS.items()))
        kubectl.apply(*(made.job(name, *silos, **spec) for name, (silos, spec) in JOBS.items()))
        yield made


def test_gpus_that_are_taken(place: Consortium) -> None:
    assert place.told("no-gpu", "SilosReady", "False", "Unschedulable") == EXPECTED["GPUs"]
    place.jobs.delete("pod", "other")


def test_data_whose_volume_is_missing(place: Consortium) -> None:
    said = place.told("no-data", "SilosReady", "False", "VolumeMissing")
    assert said == EXPECTED["volume of the data"]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "scans"}}
    place.institution("clinic").apply(claim | {"spec": spec})


def test_a_guard_whose_image_is_missing(place: Consortium) -> None:
    assert place.told("no-guard", "SilosReady", "False", "ImageNotFound") == EXPECTED["guard's image"]


def test_a_trainer_whose_image_is_missing(place: Consortium) -> None:
    assert place.told("no-trainer", "SilosReady", "False", "ImageNotFound") == EXPECTED["trainer's image"]


def test_a_method_that_nobody_knows(place: Consortium) -> None:
    """Another image could have it, so those of the pods decide; whichever of them is first ends the job."""
    place.reached("no-method", "Accepted", "Unknown", "Unverified")
    place.jobs.wait("federatedjob", "no-method", "condition=Failed", END)
    failed = place.condition("no-method", "Failed")
    assert failed["reason"] in ("ManifestInvalid", "QuorumLost")
    assert "(ManifestInvalid)" in failed["message"]
    why = place.kubectl.fedsilo("why", "no-method", "-n", place.jobs.name)
    assert f"Method fedavgg is not installed in this operator, which knows {', '.join(names())}" in why
    assert "correct spec.method.name in a new job" in why


def test_a_trainer_with_too_little_memory(place: Consortium) -> None:
    """It is tried again as often as the job says."""
    assert place.told("no-memory", "Failed", "True", "QuorumLost") == EXPECTED["memory"]
    assert _failure(place, "no-memory") == "OutOfMemory"
    assert _trainers(place, "no-memory") == 2


def test_data_whose_file_is_missing(place: Consortium) -> None:
    """The volume is there by now; no second try would find the file. Its name stays in the silo, in the log."""
    assert place.told("no-data", "Failed", "True", "QuorumLost") == EXPECTED["file of the data"]
    assert _failure(place, "no-data") == "DataInvalid"
    assert _trainers(place, "no-data") == 1
    where = ("no-data", "-n", place.jobs.name, "--silo", "no-data", "--component", "trainer")
    assert "'/data/digits/missing.npz' is not a file" in place.kubectl.fedsilo("logs", *where)


def test_gpus_that_have_become_free(place: Consortium) -> None:
    place.reached("no-gpu", "Complete", "True", "Complete")


def test_an_aggregator_whose_image_is_missing(place: Consortium) -> None:
    said = place.told("no-aggregator", "Running", "False", "ImageNotFound")
    assert said == EXPECTED["aggregator's image"]


def test_an_institution_that_goes_while_the_job_runs(place: Consortium) -> None:
    place.reached("no-aggregator", "SilosReady", "True", "Running")
    place.kubectl.run("delete", "namespace", place.institution("hospital").name, "--wait=false")
    said = place.told("no-aggregator", "SilosReady", "False", "SiloNotFound")
    assert said == EXPECTED["institution that goes"]


def test_nothing_of_an_ended_job_still_runs(place: Consortium) -> None:
    """Whatever went wrong, the pods of jobs that are over are gone or done."""
    for job in ("no-method", "no-data", "no-memory", "no-gpu"):
        until(lambda job=job: not _living(place, job), f"the pods of {job} to end")  # type: ignore[misc]


def _failure(place: Consortium, job: str) -> str:
    """Why the clinic's agent failed, in one word."""
    agent = place.agent("clinic", job)
    assert agent is not None
    (found,) = (item for item in agent["status"]["conditions"] if item["type"] == "Failed")
    return str(found["reason"])


def _trainers(place: Consortium, job: str) -> int:
    """Trainers that the clinic has started, whether they are still there or not."""
    labels = f"fedsilo.io/job-name={job},app.kubernetes.io/component=trainer"
    (trainer,) = place.institution("clinic").select("jobs", labels)
    return sum(int(trainer["status"].get(name, 0)) for name in ("failed", "active", "succeeded"))


def _living(place: Consortium, job: str) -> list[Object]:
    return [one for one in place.pods(job) if one["status"]["phase"] not in ("Succeeded", "Failed")]
