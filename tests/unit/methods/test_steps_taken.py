"""Private steps that silos really take, in every form of every method that has any: they are those that are charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from typing_extensions import override

from benchmarks.privacy.recorder import recording
from fedsilo.errors import FedsiloError
from fedsilo.learning.local_steps import LocalSteps
from fedsilo.methods import registry
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.private_steps import noisy_counts
from fedsilo.methods.differential_privacy import job_mechanisms, uncovered_payloads
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.traits import PLAIN_TRAITS, TrainingTraits
from fedsilo.silo.runner import TaskRunner
from tests.federate import bound_method, federate, job_spec, runners, skewed_silos
from tests.unit.methods.forms import FIRST_FORMS, FORMS, form_spec

PRIVACY_SPEC = {
    "unit": "example",
    "noiseMultiplier": 1.5,
    "delta": 1e-3,
    "maxGradNorm": 0.7,
    "maxFeatureNorm": 2.0,
}
TRAININGS: list[Mapping[str, Any]] = [
    {"batchSize": 12, "localSteps": 1},
    {"batchSize": 7, "localEpochs": 2},
    {"batchSize": 6, "localSteps": 5},
    {"batchSize": 3, "gradientAccumulation": 2, "localEpochs": 1, "minSteps": 6},
]


def covered_forms() -> list[str]:
    """Forms that a job with differential privacy of examples may have."""
    found = []
    for form, (name, config) in FORMS.items():
        method = bound_method(name, 2, 3, config)
        if method.training.mechanisms and not uncovered_payloads(method) and method.models.personal is None:
            found.append(form)
    return found


def test_there_are_forms_of_every_kind() -> None:
    assert {
        "fedavg",
        "fedavgm",
        "fedconcat-released",
        "fedconcat-id-released",
        "ccvr-means",
        "tau-norm",
    } <= set(covered_forms())
    assert len(covered_forms()) > 15


def trained_forms() -> Iterator[ParameterSet]:
    """Forms, each with a training in turn, and those with plans of their own with all of them."""
    for place, form in enumerate(covered_forms()):
        own = "released" in form and "concat" in form
        for more in range(len(TRAININGS) if own else 1):
            quick = form in FIRST_FORMS.values() or (own and more == 0)
            training = TRAININGS[(place + more) % len(TRAININGS)]
            yield pytest.param(form, training, marks=[] if quick else [pytest.mark.thorough])


@pytest.mark.parametrize(("form", "training"), list(trained_forms()))
def test_what_is_charged_is_what_is_drawn(tmp_path: Path, form: str, training: Mapping[str, Any]) -> None:
    """Samples and noise are counted where they are drawn; silos have 24 and 36 examples."""
    silos = [*skewed_silos(tmp_path, {"s0": [0, 1]}), *skewed_silos(tmp_path, {"s1": [1, 2, 3]})]
    privacy = {"differentialPrivacy": PRIVACY_SPEC, "minSamplesPerClass": 1}
    answering = runners(form_spec(form, ["s0", "s1"], training=training, privacy=privacy), silos, tmp_path)
    spec = next(iter(answering.values())).method.spec
    with recording(0.7, 2.0) as recorded:
        assert federate(tmp_path / "job", spec, answering).failure is None
    for runner in answering.values():
        planned = Counter[tuple[float, float]]()
        for mechanism in job_mechanisms(runner.method, len(runner.context.train), 1.5):
            planned[round(mechanism.noise_multiplier, 9), mechanism.sampling] += mechanism.times
        drawn = recorded.releases(runner.context.secret)
        assert {(round(noise, 9), rate): times for (noise, rate), times in drawn.items()} == planned


def released_steps(records: int, training: Mapping[str, Any]) -> tuple[int, ...]:
    config = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1, "variant": "released"}
    given = {"differentialPrivacy": PRIVACY_SPEC}
    method = bound_method("fedconcat", 2, 2, config, training=training, privacy=given)
    return tuple(mechanism.times for mechanism in job_mechanisms(method, records))


def test_the_released_form_of_fedconcat_is_charged_for_its_three_mini_batches() -> None:
    """Counts once, then one step of the encoders, then up to three of the classifier."""
    assert released_steps(300, {"batchSize": 10, "localSteps": 1}) == (1, 1, 3)
    assert released_steps(20, {"batchSize": 10, "localSteps": 7}) == (1, 7, 2)
    assert released_steps(300, {"batchSize": 10, "localEpochs": 2}) == (1, 60, 3)


class MoreSteps(FedAvg):
    """Trains by another plan than it declares."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            plan = replace(silo.local_training(task), max_steps=4, min_steps=4)
            return train_model(silo, task, private, plan=plan)

        return {"train": train}

    @property
    @override
    def training(self) -> TrainingTraits:
        return PLAIN_TRAITS


class DeclaredPlanMethod(MoreSteps):
    """Trains by the plan that it declares."""

    @property
    @override
    def training(self) -> TrainingTraits:
        taken = replace(LocalSteps.of(self.spec.training), max_steps=4, min_steps=4)
        return replace(super().training, plans={"train": taken})


class UndeclaredNoiseMethod(FedAvg):
    """Sends what it declares no mechanism for."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        def count(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            return Reply(mechanisms=noisy_counts(silo, task)[1])

        return {"train": count}


def answer(tmp_path: Path, method: type[FedAvg], monkeypatch: pytest.MonkeyPatch) -> Reply:
    training = {"batchSize": 6, "localEpochs": 10}
    spec = job_spec("fedavg", ["s0"], training=training, privacy={"differentialPrivacy": PRIVACY_SPEC})
    own = method(spec, method.Config())
    monkeypatch.setattr(registry, "bind", lambda given: own)
    (runner,) = runners(spec, skewed_silos(tmp_path, {"s0": [0, 1]}), tmp_path).values()
    assert isinstance(runner, TaskRunner)
    task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, {})
    return runner.run(task, State())


def test_a_method_that_trains_by_another_plan_than_it_declares_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        FedsiloError, match=r"plans 4 steps of 6 out of 24 records, and declares 40 steps.*local_steps"
    ):
        answer(tmp_path, MoreSteps, monkeypatch)


def test_a_method_that_declares_its_plan_is_charged_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mechanism,) = answer(tmp_path, DeclaredPlanMethod, monkeypatch).mechanisms
    assert (mechanism.times, mechanism.sampling) == (4, 6 / 24)


def test_noise_for_which_nothing_is_declared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FedsiloError, match=r"method fedavg declares no Gaussian in its step 'train'"):
        answer(tmp_path, UndeclaredNoiseMethod, monkeypatch)
