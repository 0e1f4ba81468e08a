"""FedProto against the released codes, and what becomes of classes that few silos, or none, tell of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.faults import ManifestFaults
from fedsilo.learning.evaluation import features_of
from fedsilo.methods.interface import PERSONAL_TREE, Reply, SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.transforms.conflicts import check_job
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, runners, silo_of_file, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    ROUND,
    ObservedSilo,
    answers,
    assert_close,
    fixture_spec,
    run_recorded_job,
    server_context,
)

CLASSES = {"a": [0, 1], "b": [1, 2]}


def prototypes(npz: reference_numbers.Numbers, prefix: str) -> Tree:
    return {f"prototype/{name}": array for name, array in fixture_tree(npz, prefix).items()}


def test_a_silos_training_is_that_of_the_authors_code() -> None:
    fixture = "fedproto_client"
    npz, path = reference_numbers.load(fixture), reference_numbers.path(fixture)
    optimizer = {"learningRate": float(npz["lr"]), "momentum": float(npz["momentum"]), "weightDecay": 0}
    training = {
        "localEpochs": int(npz["epochs"]),
        "batchSize": int(npz["batch"]),
        "optimizer": optimizer,
    }
    config = {"prototypeWeight": float(npz["ld"])}
    spec = fixture_spec("fedproto", fixture, 1, method={"config": config}, training=training)
    (runner,) = runners(spec, [silo_of_file(path, "c0", features="x", labels="y")], path.parent).values()
    runner.context = replace(runner.context, shuffle=False)
    trees = {"prototypes": prototypes(npz, "gp/")}
    reply = runner.run(SiloTask("train", "train", 2, 2, 2, trees, {}), State())
    assert reply.private is not None
    assert_close(reply.private.tree(PERSONAL_TREE), fixture_tree(npz, "after/"))
    found = features_of(runner.context.model(reply.private.tree(PERSONAL_TREE)), runner.context.train)
    assert_close(reply.tensors, {f"mean/{c}": found[npz["y"] == c].mean(axis=0) for c in (0, 1)})  # eq. 3


def aggregated_state(variant: str, sent: dict[str, Tree], start: State | None = None) -> State:
    method = bound_method("fedproto", len(sent), config={"variant": variant})
    job = server_context(method.spec, ModelSignature((), 4, 3))
    told = {silo: {"class_means": tree} for silo, tree in sent.items()}
    updates = answers(told, payloads=method.steps()["train"].payloads)
    return method.server().aggregate(job, start or State(), ROUND, updates)


def test_prototypes_are_the_means_of_the_authors_code() -> None:
    npz = reference_numbers.load("fedproto_aggregate")
    sent: dict[str, Tree] = {
        f"silos/s{k}": {f"mean/{c}": array for c, array in fixture_tree(npz, f"local/{k}/").items()}
        for k in range(3)
    }
    assert_close(aggregated_state("paper", sent).tree("prototypes"), prototypes(npz, "global/"))


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_maps_form_is_that_of_its_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_fedproto")
    config = {"variant": "map", "prototypeWeight": float(npz["arg/reg_lamb"])}
    engine, silos = run_recorded_job(tmp_path, "fedproto", "map_fedproto", rounds, config)
    wanted = {f"prototype/{c}": row for c, row in enumerate(npz[f"round{rounds}/protos"])}
    assert_close(engine.state.tree("prototypes"), wanted)
    for k, silo in enumerate(silos):
        assert_close(
            silo.private_state.tree(PERSONAL_TREE), fixture_tree(npz, f"round{rounds}/local_models/{k}/")
        )


def test_a_class_that_no_silo_of_the_round_tells_of_keeps_its_prototype() -> None:
    old = State({"prototypes": {"prototype/3": np.ones(3, np.float32)}})
    found = aggregated_state("paper", {"silos/s0": {"mean/0": np.zeros(3, np.float32)}}, old).tree(
        "prototypes"
    )
    assert {name: array.tolist() for name, array in found.items()} == {
        "prototype/0": [0, 0, 0],
        "prototype/3": [1, 1, 1],
    }


def test_a_count_without_a_total_is_no_prototype() -> None:
    sent: dict[str, Tree] = {
        "silos/s0": {"count/0": np.array(2), "total/0": np.ones(3, np.float32), "count/1": np.array(4)},
        "silos/s1": {"count/0": np.array(2), "total/0": np.full(3, 3, np.float32)},
    }
    found = aggregated_state("map", sent).tree("prototypes")
    assert {name: array.tolist() for name, array in found.items()} == {"prototype/0": [1, 1, 1]}


def finished_replies(
    tmp_path: Path, rounds: int = 2, **sections: Any
) -> tuple[list[Reply], dict[str, Any], Tree]:
    """Replies of silo `a`, `model.json`, and the prototypes."""
    silos = skewed_silos(tmp_path, CLASSES)
    spec = job_spec("fedproto", list(CLASSES), rounds, **sections)
    observed = {name: ObservedSilo(runner) for name, runner in runners(spec, silos, tmp_path).items()}
    engine = federate(tmp_path / "job", spec, observed)
    assert engine.result is not None, engine.failure
    described = json.loads(engine.result.path.with_suffix(".json").read_text())
    replies = [observed["silos/a"].seen["train", number][1] for number in range(1, rounds + 1)]
    found = engine.state.tree("prototypes") if "prototypes" in engine.state.trees else {}
    return replies, described, found


@pytest.mark.parametrize("variant", ["paper", "map"])
def test_a_silo_tells_of_its_own_classes_and_nothing_of_its_model(tmp_path: Path, variant: str) -> None:
    replies, described, found = finished_replies(tmp_path, method={"config": {"variant": variant}})
    blocks = ("mean",) if variant == "paper" else ("count", "total")
    for reply in replies:
        assert set(reply.tensors) == {f"{block}/{label}" for block in blocks for label in (0, 1)}
        assert set(reply.support.values()) == {12}
    assert set(found) == {f"prototype/{label}" for label in (0, 1, 2)}
    assert described["prototypes"] == [0, 1, 2] and described["model"]["name"] == "prototypes"


@pytest.mark.parametrize(("steps", "told"), [(3, []), (12, [0, 1])])
def test_in_maps_form_a_class_counts_as_the_examples_that_the_steps_saw(
    tmp_path: Path, steps: int, told: list[int]
) -> None:
    """Examples count once the steps have seen them: of 12 of each class, 3 steps of 4 see some, though the sums stand
    for all 12; 12 steps see all."""
    spec = job_spec(
        "fedproto",
        list(CLASSES),
        method={"config": {"variant": "map"}},
        training={"rounds": 1, "device": "cpu", "localSteps": steps, "batchSize": 4},
        privacy={"minSamplesPerClass": 10},
    )
    runner = runners(spec, skewed_silos(tmp_path, CLASSES), tmp_path)["silos/a"]
    reply = runner.run(SiloTask("train", "train", 1, 1, 1, {}, {}), State())
    assert set(reply.tensors) == {f"{block}/{label}" for block in ("count", "total") for label in told}
    assert set(reply.support.values()) == ({12} if told else set())


@pytest.mark.parametrize("steps", [4, 5, 9])
def test_steps_beyond_a_pass_do_not_count_an_example_twice(tmp_path: Path, steps: int) -> None:
    """A pass over 24 examples is 6 steps of 4."""
    spec = job_spec(
        "fedproto",
        list(CLASSES),
        method={"config": {"variant": "map"}},
        training={"rounds": 1, "device": "cpu", "localSteps": steps, "batchSize": 4},
    )
    runner = runners(spec, skewed_silos(tmp_path, CLASSES), tmp_path)["silos/a"]
    reply = runner.run(SiloTask("train", "train", 1, 1, 1, {}, {}), State())
    behind = [reply.support[f"total/{label}"] for label in (0, 1)]
    assert sum(behind) == min(4 * steps, 24)
    assert [int(reply.tensors[f"count/{label}"]) for label in (0, 1)] == [12, 12]


def test_classes_below_the_minimum_are_left_out_and_silos_train_on(tmp_path: Path) -> None:
    replies, described, found = finished_replies(tmp_path, privacy={"minSamplesPerClass": 13})
    assert [reply.tensors for reply in replies] == [{}, {}]
    assert found == {} and described["prototypes"] == []


def test_without_weight_silos_train_alone(tmp_path: Path) -> None:
    own = []
    for method, config in (("fedproto", {"prototypeWeight": 0}), ("local", {})):
        directory = tmp_path / method
        directory.mkdir()
        silos = skewed_silos(directory, CLASSES)
        spec = job_spec(method, list(CLASSES), 2, method={"config": config})
        observed = {name: ObservedSilo(runner) for name, runner in runners(spec, silos, directory).items()}
        federate(directory / "job", spec, observed)
        private = observed["silos/a"].seen["train", 2][1].private
        assert private is not None
        own.append(private.tree(PERSONAL_TREE))
    assert_close(*own)


@pytest.mark.parametrize("method", ["fedproto", "local"])
def test_there_is_no_common_model_to_choose_or_to_calibrate(method: str) -> None:
    for metric, faults in (("accuracy", 1), ("personal_accuracy", 0)):
        found = bound_method(method, evaluation={"every": 1, "best": {"metric": metric}})
        assert len(list(check_job(found))) == faults
    (fault,) = check_job(bound_method(method, evaluation={"metrics": ["recall"]}))
    assert fault[0] == "spec.evaluation.metrics" and f"{method} yields none" in fault[2]
    with pytest.raises(ManifestFaults, match=rf'after\.name: "{method}": does not yield one model; '):
        bound_method("ccvr", config={"after": {"name": method}})
