"""Jobs on what institutions have: folders of images and tables, on volumes of theirs, with words of their own.

Both jobs run at once in the same two institutions, and end with the bytes that `fedsilo run` gives.
"""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.examples import documents
from tests.cluster.consortium import Consortium, new_consortium
from tests.cluster.federation import run_here
from tests.cluster.namespace import Namespace
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(600)

SILOS = ("south", "west")
"""Each is of an institution of its own, which is named like it."""

GUIDE = ROOT / "examples" / "tables"

DIGITS = ("zero", "one", "two")
IMAGES_PER_CLASS = 40
TEST_ROWS = 169
"""Rows of the guide's public table that are for the test."""

POLICY = {
    "methods": ["fedavg"],
    "payloadKinds": ["model", "feature_statistics"],
    "minSamplesPerFeature": 20,
    "minSamplesPerClass": None,
}

SCANS: dict[str, Any] = {
    "model": {"name": "lenet", "config": {"padding": 2}},
    "data": {
        "dataset": "scans",
        "classes": list(DIGITS),
        "inputShape": [1, 8, 8],
        "onSchemaMismatch": "map",
        "preprocessing": {"standardise": True},
    },
    "training": {"rounds": 3, "localEpochs": 1, "batchSize": 16, "seed": 1},
    "evaluation": {
        "testDataset": "scans-test",
        "metrics": ["balanced_accuracy", "recall"],
        "best": {"metric": "balanced_accuracy"},
    },
}


@dataclass(frozen=True)
class FinishedJobs:
    """The jobs, complete, and what `fedsilo run` says of the same manifests."""

    consortium: Consortium
    here: dict[str, Object]

    def status(self, job: str) -> Object:
        """Status of a job."""
        return dict(self.consortium.observed_job(job)["status"])


@pytest.fixture(scope="module")
def finished_jobs(
    kubectl: Kubectl, operator: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FinishedJobs]:
    given = tmp_path_factory.mktemp("given")
    write_images(given)
    write_tables(given)
    with new_consortium(kubectl, *SILOS) as made:
        silos = [silo(made, name) for name in SILOS]
        jobs = {"scans": scans(made), "tumours": tumours(made)}
        places = [(made.institution(name), dataset) for name in SILOS for dataset in ("scans", "tumours")]
        places += [(made.jobs, "scans-test"), (made.jobs, "tumours-test")]
        volumes = [volume(place, given / dataset) for place, dataset in places]
        try:
            kubectl.apply(*volumes, *(claim(place, dataset) for place, dataset in places))
            kubectl.apply(*silos, *jobs.values())
            here = {}
            for name, job in jobs.items():
                folder = tmp_path_factory.mktemp(name)
                shutil.copytree(given, folder, dirs_exist_ok=True)
                here[name] = run_here([*silos, job], folder)
            for name in jobs:
                made.wait_for_condition(name, "Complete", "True", "Complete")
            yield FinishedJobs(made, here)
        finally:
            kubectl.run("delete", "pv", *(item["metadata"]["name"] for item in volumes), "--wait=false")


def write_images(folder: Path) -> None:
    """A folder of digits for each silo, of which one has words of its own for the classes, and the test set's."""
    found = load_digits()
    places = {"scans/south": DIGITS, "scans/west": ("nought", "One", "two "), "scans-test": DIGITS}
    for label in range(len(DIGITS)):
        images = iter(found.images[found.target == label])
        for place, names in places.items():
            images_of_class = folder / place / names[label]
            images_of_class.mkdir(parents=True)
            for number in range(IMAGES_PER_CLASS):
                image = Image.fromarray((next(images) * 15).astype("uint8"))
                image.save(images_of_class / f"{number}.png")


def write_tables(folder: Path) -> None:
    """The tables of the guide."""
    program = shutil.copy(GUIDE / "make_data.py", folder)
    runpy.run_path(str(program), run_name="__main__")
    (folder / "data").rename(folder / "tumours")
    (folder / "tumours-test").mkdir()
    (folder / "tumours" / "test.csv").rename(folder / "tumours-test" / "test.csv")


def silo(made: Consortium, name: str) -> Object:
    """A silo with its images, for whose classes one has words of its own, and the table that the guide gives it."""
    images = {"name": "scans", "loader": "imagefolder", "config": {"path": f"scans/{name}"}}
    if name == "west":
        images["classAliases"] = {"nought": "zero"}
    table = of_guide("Silo", name)["datasets"]
    return made.silo(name, name, datasets=mounted_datasets(images, *table), policy=POLICY)


def scans(made: Consortium) -> Object:
    """The job on images."""
    test = {"name": "scans-test", "loader": "imagefolder", "config": {"path": "scans-test"}}
    silos = [f"{name}/{name}" for name in SILOS]
    return made.job("scans", *silos, **SCANS, aggregator={"datasets": mounted_datasets(test)})


def tumours(made: Consortium) -> Object:
    """The FederatedJob `tumours` of the guide."""
    spec = of_guide("FederatedJob", "tumours")
    del spec["silos"]
    spec["aggregator"]["datasets"] = mounted_datasets(*spec["aggregator"]["datasets"])
    return made.job("tumours", *(f"{name}/{name}" for name in SILOS), **spec)


def of_guide(kind: str, name: str) -> dict[str, Any]:
    """The spec of one of the guide's objects."""
    found = documents("tables/tables.yaml")
    return next(item["spec"] for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name))


def mounted_datasets(*datasets: Object) -> list[Object]:
    """Datasets on the claims that are named like them: a path begins with the dataset's name."""
    for dataset in datasets:
        name, config = dataset["name"], dataset["config"]
        config["path"] = config["path"].replace("data/", f"{name}/")
        dataset["volume"] = {"persistentVolumeClaim": name}
    return list(datasets)


SIZE = {"storage": "1Gi"}
BOUND_CLAIM_SPEC: dict[str, Any] = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}


def volume(place: Namespace, folder: Path) -> Object:
    """A folder of the node, as an administrator offers it to a namespace."""
    folder.chmod(0o755)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{place.name}-{folder.name}"},
        "spec": {
            **BOUND_CLAIM_SPEC,
            "capacity": SIZE,
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }


def claim(place: Namespace, dataset: str) -> Object:
    """The claim that binds it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": dataset, "namespace": place.name},
        "spec": {
            **BOUND_CLAIM_SPEC,
            "volumeName": f"{place.name}-{dataset}",
            "resources": {"requests": SIZE},
        },
    }


@pytest.mark.parametrize("job", ["scans", "tumours"])
def test_the_model_is_the_one_that_fedsilo_run_gives(finished_jobs: FinishedJobs, job: str) -> None:
    status, here = finished_jobs.status(job), finished_jobs.here[job]
    assert status["model"]["sha256"] == here["model"]["sha256"]
    assert status["metrics"] == pytest.approx(here["metrics"], abs=1e-3)
    assert [silo["samples"] for silo in status["silos"]] == [silo["samples"] for silo in here["silos"]]


def test_the_best_model_is_that_of_the_round_with_the_best_score(finished_jobs: FinishedJobs) -> None:
    best, here = finished_jobs.status("scans")["best"], finished_jobs.here["scans"]["best"]
    assert best == here | {"value": pytest.approx(here["value"], abs=1e-3)}
    curve = finished_jobs.status("scans")["curve"]
    scores = {point["round"]: point["metrics"]["balanced_accuracy"] for point in curve}
    assert best["round"] == max(scores, key=scores.__getitem__)
    assert best["value"] == pytest.approx(scores[best["round"]], abs=1e-3)


def test_a_class_has_figures_and_the_answers_that_it_got(finished_jobs: FinishedJobs) -> None:
    images, rows = (finished_jobs.status(job)["classes"] for job in ("scans", "tumours"))
    assert [item["figures"].keys() for item in images] == [{"recall"}] * len(DIGITS)
    answers = [item["answers"] for item in rows]
    assert [len(row) for row in answers] == [2, 2]
    assert sum(map(sum, answers)) == TEST_ROWS
    right = sum(row[label] for label, row in enumerate(answers))
    assert right / TEST_ROWS == pytest.approx(
        finished_jobs.status("tumours")["metrics"]["accuracy"], abs=1e-3
    )
