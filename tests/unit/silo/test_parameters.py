"""Shared tensors travel, frozen ones stay as they were handed out, local ones never leave their silo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.parameters import ParametersSpec
from fedsilo.engine.context import JobContext
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.traffic import estimate_traffic
from fedsilo.errors import ManifestInvalid, MethodError, SiloFailed
from fedsilo.learning.models import build_model, initial_model, to_tree
from fedsilo.learning.parameters import freeze, parts_of
from fedsilo.learning.saved import load_model
from fedsilo.methods import registry
from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import (
    INITIAL_WEIGHTS,
    LOCAL,
    PERSONAL_TREE,
    Reply,
    SiloContext,
    SiloStep,
    SiloTask,
)
from fedsilo.methods.state import State
from fedsilo.silo.context import open_context
from fedsilo.silo.personal import PersonalModel
from fedsilo.silo.runner import TaskRunner
from fedsilo.wire import open_blob, open_task
from tests.federate import (
    TASK_KEY,
    LocalSilo,
    bound_method,
    drive,
    federate,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    references,
    runners,
    skewed_silos,
)
from tests.unit.verification.chains import replay_directory

CLASSES_OF = {"s0": [0, 1], "s1": [1, 2, 3]}
NORMALISED_NETWORK = "python:tests.unit.silo.networks:normalised_network"
FROZEN_ENCODER = {"shared": ["classifier.*"]}
LOCAL_NORM = {"local": ["encoder.1.*"]}


def spec_of(parameters: Mapping[str, Any], method: str = "fedavg", /, **sections: Any) -> FederatedJobSpec:
    """Two rounds, after each of which the silos score the model."""
    model = {"name": NORMALISED_NETWORK, "config": {}, "parameters": parameters}
    data = {"validationFraction": 0.2}
    return job_spec(method, list(CLASSES_OF), rounds=2, model=model, data=data, **sections)


def start_job(tmp_path: Path, spec: FederatedJobSpec) -> tuple[RoundEngine, list[LocalSilo]]:
    tmp_path.mkdir(exist_ok=True)
    engine = open_engine(tmp_path / "aggregator", spec)
    return engine, local_silos(tmp_path, runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path))


def train_job(tmp_path: Path, spec: FederatedJobSpec) -> tuple[RoundEngine, list[LocalSilo]]:
    engine, silos = start_job(tmp_path, spec)
    drive(engine, silos)
    assert engine.failure is None, engine.failure
    return engine, silos


def of(tree: Mapping[str, np.ndarray], beginning: str) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tree.items() if name.startswith(beginning)}


def test_only_shared_tensors_travel_and_the_model_is_whole_at_the_end(tmp_path: Path) -> None:
    spec = spec_of(FROZEN_ENCODER, aggregator={"keepUpdates": True})
    engine, silos = start_job(tmp_path, spec)
    handed: set[str] = set()
    while not engine.ended:
        task = engine.task("silos/s0")
        assert task is not None
        blobs = {link.name: link.digest for link in open_task(task.sealed, TASK_KEY.verify_key).blobs}
        handed.add(blobs[INITIAL_WEIGHTS])
        path = engine.blob(blobs["model"])
        assert path is not None
        assert list(open_blob(path).specs) == ["classifier.weight", "classifier.bias"]
        kinds = {block.name for block in task.contract.blocks}
        assert kinds <= {"classifier.weight", "classifier.bias"}
        for silo in silos:
            silo.answer(engine)
        engine.settle()
    assert len(handed) == 1, "one blob for the whole job"
    found, start = model_of(engine), initial_model(spec)
    assert list(found) == list(start)
    assert of(found, "encoder.") == of(start, "encoder.")
    assert of(found, "classifier.") != of(start, "classifier.")
    assert (
        load_model(
            tmp_path / "aggregator" / "model.safetensors", [NORMALISED_NETWORK.removeprefix("python:")]
        ).feature
        == 6
    )
    replay_directory(tmp_path / "aggregator")
    assert all(silo.private_state == State() for silo in silos)


def test_frozen_statistics_stay_too_and_normalise_as_they_are(tmp_path: Path) -> None:
    spec = spec_of(FROZEN_ENCODER)
    model = build_model(spec.model, spec.data, seed=0)
    parts = parts_of(spec.model.parameters, model)
    assert parts is not None
    freeze(model, parts.frozen)
    model.train()
    before = of(to_tree(model), "encoder.1.running")
    model(torch.randn(4, 6)).sum().backward()
    assert of(to_tree(model), "encoder.1.running") == before
    learned = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert learned == ["classifier.weight", "classifier.bias"]


def test_local_tensors_stay_in_their_silo_and_make_its_own_model(tmp_path: Path) -> None:
    spec = spec_of(LOCAL_NORM)
    engine, silos = train_job(tmp_path, spec)
    found, start = model_of(engine), initial_model(spec)
    assert of(found, "encoder.1.") == of(start, "encoder.1.")
    method = registry.bind(spec)
    norms = []
    for silo in silos:
        private = silo.private_state
        assert set(private.tree(LOCAL)) == {name for name in start if name.startswith("encoder.1.")}
        own = private.tree(PERSONAL_TREE)
        assert of(own, "encoder.1.") == of(private.tree(LOCAL), "") != of(start, "encoder.1.")
        for shared in ("encoder.0.", "encoder.3.", "classifier."):
            assert of(own, shared) == of(found, shared)
        norms.append(of(own, "encoder.1."))
        directory = tmp_path / silo.reference
        PersonalModel(directory, method, silo.reference).publish(private)
        loaded = to_tree(
            load_model(directory / "personal.safetensors", [NORMALISED_NETWORK.removeprefix("python:")])
        )
        assert of(loaded, "") == of(own, "")
    assert norms[0] != norms[1]


def test_a_silo_begins_with_its_own_tensors_of_its_last_accepted_answer(tmp_path: Path) -> None:
    spec = spec_of({"local": ["classifier.*"]})
    seen: list[dict[str, bytes]] = []

    class Noting(FedAvg):
        @override
        def silo(self) -> Mapping[str, SiloStep]:
            def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
                seen.append(of(to_tree(silo.model(task.trees["model"])), "classifier."))
                reply = train_model(silo, task, private)
                seen.append({name: bytes(data) for name, data in of(reply.tensors, "classifier.").items()})
                return reply

            return {"train": train}

    method = Noting(spec, Noting.Config())
    only = {
        "silos/s0": TaskRunner(method, open_context(spec, skewed_silos(tmp_path, CLASSES_OF)[0], tmp_path))
    }
    runner = runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path) | only
    federate(tmp_path, spec, runner, method=Noting)
    first, after_first, second, after_second = seen
    assert first == of(initial_model(spec), "classifier.")
    assert second == after_first != first
    assert after_second != second


WITH_PARTS = [name for name in registry.names() if bound_method(name).models.shared.whole is None]


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[] if name == "moon" else [pytest.mark.thorough]) for name in WITH_PARTS],
)
def test_every_method_that_says_it_can_have_parts_has_them(tmp_path: Path, method: str) -> None:
    spec = spec_of({"frozen": ["encoder.0.*"], "local": ["classifier.*"]}, method)
    engine, silos = train_job(tmp_path, spec)
    found, start = model_of(engine), initial_model(spec)
    assert of(found, "encoder.0.") == of(start, "encoder.0.")
    assert of(found, "encoder.3.") != of(start, "encoder.3.")
    assert of(found, "classifier.") == of(start, "classifier.")
    assert all(of(silo.private_state.tree(LOCAL), "") != of(start, "classifier.") for silo in silos)


def test_the_others_say_why_not() -> None:
    assert {"fedavg", "fedprox", "fedrs", "fedlc", "moon"} <= set(WITH_PARTS)
    assert all(bound_method(name).models.shared.whole for name in set(registry.names()) - set(WITH_PARTS))


def test_a_killed_aggregator_and_silo_go_on_with_the_same_bytes(tmp_path: Path) -> None:
    spec = spec_of(LOCAL_NORM)
    undisturbed, _ = train_job(tmp_path / "one", spec)
    engine, silos = start_job(tmp_path / "two", spec)
    while not engine.ended:
        for number in range(len(silos)):
            silos[number].answer(engine)
            acknowledged = [silo.acknowledged for silo in silos]
            engine, silos = start_job(tmp_path / "two", spec)
            for silo, task in zip(silos, acknowledged, strict=True):
                silo.acknowledged = task
        engine.settle()
    assert of(model_of(engine), "") == of(model_of(undisturbed), "")


class CarelessMethod(FedAvg):
    """Its silos train on, whatever is frozen."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
            reply = train_model(silo, task, private)
            changed = reply.tensors["encoder.0.weight"].copy()
            changed.reshape(-1)[0] = np.nextafter(changed.reshape(-1)[0], np.float32(9))
            return Reply(reply.tensors | {"encoder.0.weight": changed}, reply.samples, reply.metrics)

        return {"train": train}


def careless_runners(spec: FederatedJobSpec, tmp_path: Path) -> dict[str, TaskRunner]:
    method = CarelessMethod(spec, CarelessMethod.Config())
    silos = skewed_silos(tmp_path, CLASSES_OF)
    return {str(silo): TaskRunner(method, open_context(spec, silo, tmp_path)) for silo in silos}


def test_a_trainer_that_changes_a_frozen_tensor_by_one_bit_sends_nothing(tmp_path: Path) -> None:
    spec = spec_of(FROZEN_ENCODER)
    with pytest.raises(
        SiloFailed, match=r"training changed tensor 'encoder.0.weight', which spec.model.parameters"
    ):
        federate(tmp_path, spec, careless_runners(spec, tmp_path), method=CarelessMethod)
    assert not list(tmp_path.glob("silos.*/guard/outbox/*.update"))
    assert not list(tmp_path.glob("silos.*/drop/*/tensors"))


def test_own_training_has_the_same_parts(tmp_path: Path) -> None:
    spec = spec_of(FROZEN_ENCODER, training={"trainer": "python:tests.unit.silo.networks:shifting"})
    engine, _ = train_job(tmp_path / "one", spec)
    assert of(model_of(engine), "encoder.") == of(initial_model(spec), "encoder.")
    assert of(model_of(engine), "classifier.bias") != of(initial_model(spec), "classifier.bias")
    spec = spec_of(FROZEN_ENCODER, training={"trainer": "python:tests.unit.silo.networks:nudging"})
    engine, silos = start_job(tmp_path / "two", spec)
    drive(engine, silos)
    assert "training changed tensor 'encoder.0.bias', which spec.model.parameters freezes" in str(
        engine.failure
    )


def test_a_reply_without_all_tensors_is_refused(tmp_path: Path) -> None:
    spec = spec_of(FROZEN_ENCODER)

    class Partial(FedAvg):
        @override
        def silo(self) -> Mapping[str, SiloStep]:
            def train(silo: SiloContext, task: SiloTask, private: State) -> Reply:
                return Reply(dict(task.trees["model"]), 1)

            return {"train": train}

    silo = skewed_silos(tmp_path, CLASSES_OF)[0]
    runner = TaskRunner(Partial(spec, Partial.Config()), open_context(spec, silo, tmp_path))
    start = initial_model(spec)
    trees = {
        "model": {name: start[name] for name in start if name.startswith("classifier")},
        INITIAL_WEIGHTS: start,
    }
    with pytest.raises(
        MethodError, match=r"training gave back no tensor 'encoder.0.weight'; it must give back"
    ):
        runner.run(SiloTask("train", "train", 1, 1, 2, trees, {}), State())


def test_bytes_of_a_job_count_the_frozen_part_once(tmp_path: Path) -> None:
    spec = spec_of(FROZEN_ENCODER)
    estimate = estimate_traffic(registry.bind(spec), references(spec))
    classifier = (6 * 4 + 4) * 4
    assert [phase.up for phase in estimate.phases] == [classifier, 0]
    train, _ = estimate.phases
    whole = sum(array.nbytes for array in initial_model(spec).values())
    assert train.down > whole + classifier
    header = 300  # of a small file, at most
    assert classifier < train.again < classifier + header
    exchanges = 2 * len(estimate.phases)  # two rounds, and a score after each
    assert estimate.down < train.down + (exchanges - 1) * (classifier + header)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"frozen": ["encoder.*", "encodr.0.*"]},
            "spec.model.parameters.frozen[1]: 'encodr.0.*': matches no tensor of the model; the nearest of its 11 is "
            "encoder.0.bias",
        ),
        (
            {"shared": ["*.bias"], "local": ["classifier.*"]},
            "spec.model.parameters: tensor 'classifier.bias' is named in shared and in local; narrow the patterns",
        ),
        (
            {"frozen": ["*"]},
            "spec.model.parameters: no parameter is shared, so that silos would learn nothing from each other; leave "
            "some to shared",
        ),
    ],
)
def test_patterns_that_do_not_fit_the_model(parameters: dict[str, Any], message: str) -> None:
    spec = spec_of(parameters)
    with pytest.raises(ManifestInvalid) as caught:
        JobContext.of(registry.bind(spec), references(spec))
    assert str(caught.value) == message


def test_a_tensor_with_two_names_is_of_one_part() -> None:
    model = build_model(
        spec_of(LOCAL_NORM).model.model_copy(update={"name": "python:tests.unit.silo.networks:tied_network"}),
        spec_of(LOCAL_NORM).data,
        seed=0,
    )
    with pytest.raises(
        ManifestInvalid, match=r"'encoder.0.weight' and 'encoder.1.weight' are one tensor and stand"
    ):
        parts_of(ParametersSpec(frozen=("encoder.0.*",)), model)
    parts = parts_of(ParametersSpec(frozen=("encoder.*",)), model)
    assert parts is not None and parts.shared == {"classifier.weight", "classifier.bias"}
