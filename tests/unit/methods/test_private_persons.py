"""Jobs that protect persons: what a person adds to statistics, what is counted, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.errors import DataInvalid, FedsiloError, MethodError
from fedsilo.methods.components.private_steps import noise_multiplier_of, noisy_counts, noisy_moments
from fedsilo.methods.differential_privacy import job_mechanisms, noise_multiplier
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.silo.context import LocalContext, open_context
from fedsilo.simulation.data import SharedData
from tests.federate import federate, job_spec, runners, silo_of_file
from tests.unit.methods.test_differential_privacy import CONCAT, Noting, private_method

TASK = SiloTask("statistics", "calibration", 1, 1, 1, {}, {})
NORM = 2.0


def silo_of(root: Path, name: str, labels: np.ndarray, persons: np.ndarray | None) -> Silo:
    """A silo with these examples, and whose each is."""
    features = (np.random.default_rng(0).normal(0, 0.3, (len(labels), 6)) + np.eye(6)[labels]).astype(
        np.float32
    )
    arrays = {"images": features, "labels": labels} | ({} if persons is None else {"patients": persons})
    np.savez(root / f"{name}.npz", **arrays)
    silo = silo_of_file(root / f"{name}.npz", name)
    if persons is not None:
        silo.spec.datasets[0].config["person"] = "patients"
    return silo


def job(
    method: str, /, silos: list[str], noise: float = 1.5, unit: str = "person", **sections: Any
) -> FederatedJobSpec:
    given = {"unit": unit, "noiseMultiplier": noise, "delta": 1e-3, "maxFeatureNorm": NORM}
    training = {"batchSize": 6} | sections.pop("training", {})
    privacy = {"differentialPrivacy": given, "minSamplesPerClass": 1}
    return job_spec(method, silos, 2, training=training, privacy=privacy, **sections)


def ward(persons: int = 12, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Labels and persons of a ward: of person p there are p + 1 examples, of all classes."""
    whose = np.repeat(np.arange(persons), np.arange(persons) + 1)
    return np.arange(len(whose)) % classes, whose


def context(root: Path, labels: np.ndarray, persons: np.ndarray, noise: float = 1e-6) -> LocalContext:
    return open_context(job("ccvr", ["a"], noise), silo_of(root, "a", labels, persons), root)


def statistics(silo: LocalContext, features: np.ndarray) -> np.ndarray:
    """All that statistics are made of over the norms that the noise reckons with: counts, sums, upper triangles."""
    moments, _ = noisy_moments(silo, TASK, features, 2)
    labels, parts = silo.train.labels.numpy(), silo.train.parts
    found = []
    for label, (_, total, products) in enumerate(moments):
        assert products is not None
        count = parts[labels == label].sum()  # which is rounded only after the noise
        found.append(np.concatenate([[count], total / NORM, products[np.triu_indices(len(total))] / NORM**2]))
    return np.concatenate(found)


@pytest.mark.parametrize("of_one_class", [True, False])
def test_a_person_adds_to_statistics_no_more_than_one_example_would(
    tmp_path: Path, of_one_class: bool
) -> None:
    labels, persons = ward()
    if of_one_class:
        labels = np.where(persons == 11, 1, labels)
    rng = np.random.default_rng(1)
    features = rng.normal(0, 5, (len(labels), 4))
    features[persons == 11] = 1e6 * (1 if of_one_class else features[persons == 11])
    whole, without = (tmp_path / name for name in ("whole", "without"))
    for folder in (whole, without):
        folder.mkdir()
    rest = persons != 11
    added = statistics(context(whole, labels, persons), features) - statistics(
        context(without, labels[rest], persons[rest]), features[rest]
    )
    assert np.linalg.norm(added) <= np.sqrt(3) * (1 + 1e-4)
    if of_one_class:  # the bound is reached but for the upper triangle of equal entries
        assert np.linalg.norm(added) > 1.5


def test_counts_are_of_persons(tmp_path: Path) -> None:
    persons = np.repeat(np.arange(12), 10)
    silo = context(tmp_path, persons % 3, persons)
    assert noisy_counts(silo, TASK)[0].tolist() == [4, 4, 4, 0]
    moments, _ = noisy_moments(silo, TASK, np.ones((120, 5)) * 0.1, 2)
    assert [count for count, _, _ in moments] == [4, 4, 4, 0]
    assert moments[0][1] == pytest.approx(np.full(5, 0.4), abs=1e-4)


def test_noise_and_epsilon_are_those_of_so_many_persons() -> None:
    for records in (50, 100):
        of_persons, of_examples = (
            private_method(unit=unit, training={"batchSize": 10}) for unit in ("person", "example")
        )
        assert noise_multiplier(of_persons, records) == noise_multiplier(of_examples, records)
    with pytest.raises(DataInvalid, match=r"persons: 20 are fewer than a batch of 32.*batch over persons"):
        noise_multiplier(private_method(unit="person", training={"batchSize": 32}), 20)
    with pytest.raises(DataInvalid, match=r"delta: 0\.001 is not below one over the 1000 persons"):
        noise_multiplier(private_method(unit="person", training={"batchSize": 32}), 1000)


@pytest.mark.parametrize(("method", "config"), [("fedavg", {}), ("ccvr", {}), ("fedconcat", CONCAT)])
def test_all_that_leaves_is_counted_by_persons(
    tmp_path: Path, method: str, config: Mapping[str, Any]
) -> None:
    labels, persons = ward()
    silos = [silo_of(tmp_path, name, labels, persons) for name in ("a", "b")]
    spec = job(method, ["a", "b"], method={"config": config})
    noting = {name: Noting(runner) for name, runner in runners(spec, silos, tmp_path).items()}
    assert federate(tmp_path / "job", spec, noting).failure is None
    for silo in noting.values():
        trained = [reply for reply in silo.replies if reply.tensors]
        # 78 examples of 12 persons: nothing says how many a person has.
        assert {reply.samples for reply in trained} == {12}
        assert all(reply.metrics == {} and reply.mechanisms for reply in trained)
        spent = [mechanism for reply in trained for mechanism in reply.mechanisms]
        assert {each.sampling for each in spent} <= {6 / 12, 1.0}
        planned = job_mechanisms(silo.runner.method, 12, 1.5)
        assert epsilon_of(spent, 1e-3) == pytest.approx(epsilon_of(planned, 1e-3), rel=1e-9)


def test_data_that_name_nobody_are_refused(tmp_path: Path) -> None:
    labels, _ = ward()
    silo, spec = silo_of(tmp_path, "a", labels, None), job("fedavg", ["a"])
    problem = "dataset 'data': does not say whose each example is.*unit person; set its config.person"
    with pytest.raises(DataInvalid, match=problem):
        open_context(spec, silo, tmp_path)
    with pytest.raises(DataInvalid, match=problem):
        SharedData(spec, tmp_path).examples(silo)


def test_fewer_persons_than_a_batch_are_refused_however_many_examples_there_are(tmp_path: Path) -> None:
    persons = np.repeat(np.arange(5), 100)
    (runner,) = runners(
        job("fedavg", ["a"]), [silo_of(tmp_path, "a", persons % 3, persons)], tmp_path
    ).values()
    task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, {})
    with pytest.raises(FedsiloError, match="persons: 5 are fewer than a batch of 6"):
        runner.run(task, State())


def test_a_simulation_has_the_same_persons_as_a_process_of_the_silo(tmp_path: Path) -> None:
    labels, persons = ward(40)
    silo = silo_of(tmp_path, "a", labels, persons)
    spec = job("fedavg", ["a"], data={"validationFraction": 0.3})
    own, shared = open_context(spec, silo, tmp_path), SharedData(spec, tmp_path).examples(silo)
    assert own.train.persons is not None
    assert shared[0].persons is not None
    assert own.train.persons.tolist() == np.unique(shared[0].persons, return_inverse=True)[1].tolist()
    assert own.train.labels.tolist() == shared[0].labels.tolist()
    assert 15 < own.train.records < 40
    assert shared[1].persons is not None
    assert not set(shared[0].persons) & set(shared[1].persons)


def test_persons_change_nothing_for_other_jobs(tmp_path: Path) -> None:
    labels, persons = ward(40)
    for unit in ("example", None):
        spec = job("fedavg", ["a"], unit=unit or "example", data={"validationFraction": 0.3})
        if unit is None:
            spec = spec.model_copy(
                update={"privacy": spec.privacy.model_copy(update={"differential_privacy": None})}
            )
        named, plain = (
            open_context(spec, silo_of(tmp_path, "a", labels, whose), tmp_path) for whose in (persons, None)
        )
        assert named.train.persons is None
        assert named.train.labels.tolist() == plain.train.labels.tolist()
        assert named.schema == plain.schema


def test_examples_without_their_persons_get_no_noise_for_persons(tmp_path: Path) -> None:
    silo = context(tmp_path, *ward())
    with pytest.raises(MethodError, match="unit: 'person' is not what the silo's examples were read for"):
        noise_multiplier_of(replace(silo, train=replace(silo.train, persons=None)))
