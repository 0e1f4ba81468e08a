"""References of the papers: calibration on real samples, all images in one place, and silos' own models on the test
set."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from benchmarks.tables import definition, reference
from benchmarks.tables.cells import cells
from benchmarks.tables.datasets import load as load_images
from benchmarks.tables.definition import IIDCalibration, Row
from benchmarks.tables.results import Run, machine
from benchmarks.tables.running import Place, Progress, run_one
from fedsilo.api.job import FederatedJob
from fedsilo.api.silo import Silo
from fedsilo.data.loaders import load as load_dataset
from tests.unit.benchmarks.test_layouts import archive
from tests.unit.benchmarks.test_table_runs import table


def test_samples_are_of_every_class_and_follow_from_the_seed() -> None:
    labels = np.array([0] * 50 + [1] * 3 + [4] * 20)
    chosen = reference.drawn_indices(labels, 5, seed=1)
    assert np.bincount(labels[chosen]).tolist() == [5, 3, 0, 0, 5]
    assert len(set(chosen.tolist())) == len(chosen)
    np.testing.assert_array_equal(chosen, reference.drawn_indices(labels, 5, seed=1))
    assert not np.array_equal(chosen, reference.drawn_indices(labels, 5, seed=2))


def test_a_row_that_is_calibrated_on_real_samples(tmp_path: Path) -> None:
    archive(tmp_path)
    defined = table()
    defined.paper.rows["Reference"] = Row(method="fedavg", iid=IIDCalibration(perClass=2, epochs=300))
    chosen = dataclasses.replace(defined, rows=["FedAvg", "Reference"], columns=["mnist"])
    runs: list[Run] = []
    for cell in cells(chosen, 1):
        place = Place(tmp_path, "cpu", 0, "command")
        runs.append(run_one(chosen, cell, place, machine(), Progress([cell], [])))
    without, with_samples = runs
    assert without.digest != with_samples.digest
    assert with_samples.settings["iid"] == {"perClass": 2, "epochs": 300}
    assert with_samples.rounds == [*without.rounds, 3]
    assert with_samples.accuracies[:2] == without.accuracies
    assert with_samples.by_class != without.by_class


def test_images_in_one_place_are_those_that_the_silos_have(tmp_path: Path) -> None:
    archive(tmp_path)
    defined = table()
    defined.paper.rows["Centralized"] = Row(method="fedavg", pooled=True)
    layer = defined.table.model_copy(
        update={"partition": {"scheme": "creff", "config": {"imbalance": 2, "beta": 1}}}
    )
    chosen = dataclasses.replace(defined, table=layer, rows=["FedAvg", "Centralized"], columns=["mnist"])
    apart, together = cells(chosen, 1)
    assert together.settings == apart.settings | {"pooled": True}
    manifests = [cell.manifest(tmp_path, "cpu") for cell in (apart, together)]
    parts, whole = (
        [load_dataset(silo.spec.datasets[0], found.job.spec.data, root=tmp_path) for silo in found.silos]
        for found in manifests
    )
    held = np.concatenate([part.features for part in parts])
    assert len(parts) == 2 and len(whole) == 1
    assert sorted(image.tobytes() for image in held) == sorted(image.tobytes() for image in whole[0].features)
    run = run_one(chosen, together, Place(tmp_path, "cpu", 0, "command"), {}, Progress([together], []))
    assert run.costs.keys() == {"seconds"} and run.rounds == [1, 2]


def test_silos_own_models_are_scored_on_the_test_set(tmp_path: Path) -> None:
    archive(tmp_path)
    defined = table()
    defined.paper.rows["Own"] = Row(method="fedphp", ownModels=True)
    chosen = dataclasses.replace(defined, rows=["Own"], columns=["mnist"])
    [cell] = cells(chosen, 1)
    run = run_one(chosen, cell, Place(tmp_path, "cpu", 0, "command"), {}, Progress([cell], []))
    assert run.rounds == [1, 2, 3] and 0 <= run.accuracies[-1] <= 1


def test_public_images_are_those_that_no_silo_has(tmp_path: Path) -> None:
    archive(tmp_path)
    defined = table()
    defined.paper.rows["Public"] = Row(method="fedavg", public={"left": 10}, data={"samples": 20})
    chosen = dataclasses.replace(defined, rows=["Public"], columns=["mnist"])
    [cell] = cells(chosen, 1)
    *silos, job = cell.documents(tmp_path, "cpu")
    test, public = job["spec"]["aggregator"]["datasets"]
    assert job["spec"]["aggregation"]["publicDataset"] == public["name"] and "left" not in test["config"]
    images, labels = load_images(**public["config"])
    assert np.bincount(labels).tolist() == [1] * 10
    data = FederatedJob.model_validate(definition.merge_patch(job, {"spec": {"aggregation": None}})).spec.data
    sources = [Silo.model_validate(silo).spec.datasets[0] for silo in silos]
    held = np.concatenate([load_dataset(source, data, root=tmp_path).features for source in sources])
    known = {np.round(image * 255).astype(np.uint8).tobytes() for image in held}
    assert len(known) == 20 and known.isdisjoint(image.tobytes() for image in images)


def test_the_models_that_silos_send_are_scored_on_the_test_set(tmp_path: Path) -> None:
    """With one silo they are the common model; a silo that sends no whole model has no such figure."""
    archive(tmp_path)
    defined = table()
    defined.paper.rows["One"] = Row(method="fedavg", silos=1)
    defined.paper.rows["Stages"] = Row(
        method="fedconcat", config={"clusters": 1, "encoderRounds": 1, "classifierRounds": 1}
    )
    chosen = dataclasses.replace(defined, rows=["One", "Stages"], columns=["mnist"])
    one, stages = (
        run_one(chosen, cell, Place(tmp_path, "cpu", 0, "command"), {}, Progress([cell], []))
        for cell in cells(chosen, 1)
    )
    assert one.local is not None and round(one.local, 5) == one.accuracies[-1]
    assert stages.local is None


def test_a_row_whose_silos_keep_their_classifiers_has_their_own_accuracy_alone(tmp_path: Path) -> None:
    archive(tmp_path)
    defined = table()
    defined.paper.rows["Divided"] = Row(
        method="fedrep", job={"data": {"validationFraction": 0.25}, "evaluation": {"every": 1}}
    )
    chosen = dataclasses.replace(defined, rows=["Divided"], columns=["mnist"])
    [cell] = cells(chosen, 1)
    run = run_one(chosen, cell, Place(tmp_path, "cpu", 0, "command"), {}, Progress([cell], []))
    assert run.rounds == run.accuracies == run.by_class == []
    assert run.personal is not None and 0 <= run.personal <= 1
