"""FedConcat and FedConcat-ID against the numbers of the released code, and in the cases that papers leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.engine.federation import Federation
from fedsilo.learning.clustering import renumber
from fedsilo.learning.models import Model
from fedsilo.methods import registry
from fedsilo.methods.fedconcat import FedConcatConfig
from fedsilo.methods.pieces import concatenation
from fedsilo.methods.state import Tree
from tests.federate import federate, job_spec, model_of, runners, silo_holding, silo_of_file
from tests.fixture_networks import Fixture, load_fixture
from tests.paths import SHARED, needs_fixtures

CLIENTS = 6


def network(input_shape: tuple[int, ...], classes: int, fixture: str) -> Model:
    """The fixture's network: 6 -> 84, ReLU, -> 10."""
    npz = load_fixture(fixture)
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(6, 84), nn.ReLU()), nn.Linear(84, classes))
    own = {
        "encoder.1.weight": "init/enc/l.weight",
        "encoder.1.bias": "init/enc/l.bias",
        "classifier.weight": "init/cls/fc.weight",
        "classifier.bias": "init/cls/fc.bias",
    }
    model.load_state_dict({name: torch.tensor(npz[key]) for name, key in own.items()})
    return model


def released_job(fixture: str, method: str, npz: Fixture) -> Any:
    encoder_rounds, classifier_rounds = int(npz["hp/encoder_round"]), int(npz["hp/classifier_round"])
    return job_spec(
        method,
        [f"c{k}" for k in range(CLIENTS)],
        encoder_rounds + classifier_rounds,
        method={
            "config": {
                "variant": "released",
                "clusters": int(npz["hp/n_clusters"]),
                "encoderRounds": encoder_rounds,
                "classifierRounds": classifier_rounds,
            }
        },
        model={"name": f"python:{__name__}:network", "config": {"fixture": fixture}},
        data={"classes": 10, "inputShape": [1, 6]},
        training={
            "localEpochs": int(npz["hp/epochs"]),
            "batchSize": int(npz["hp/batch_size"]),
            "optimizer": {
                "learningRate": float(npz["hp/lr"]),
                "momentum": float(npz["hp/rho"]),
                "weightDecay": float(npz["hp/reg"]),
            },
        },
        evaluation={"every": 1000, "testDataset": "probe"},
        aggregator={"datasets": [{"name": "probe", "loader": "sklearn:digits"}]},
    )


def order_of(npz: Fixture) -> list[int]:
    """Recorded number of each of our clusters, which are numbered by their first silo."""
    ours = renumber(npz["assign"])
    return [int(npz["assign"][np.flatnonzero(ours == number)[0]]) for number in range(ours.max() + 1)]


def in_our_order(weight: np.ndarray, order: list[int]) -> np.ndarray:
    """Columns of a recorded large classifier, permuted as our clusters are."""
    return np.concatenate([weight[:, 84 * number : 84 * (number + 1)] for number in order], axis=1)


@pytest.fixture(params=[("fedconcat_e2e", "fedconcat"), ("fedconcat_id_e2e", "fedconcat-id")], ids=str)
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Fixture, Tree]:
    """A fixture, and the model of a job over it that begins stage 3 where the recorded run began it."""
    fixture, method = request.param
    npz = load_fixture(fixture)

    def recorded_classifier(*_: Any) -> Tree:
        weight = in_our_order(npz["large_init/fc.weight"], order_of(npz))
        return {"classifier.weight": weight, "classifier.bias": npz["large_init/fc.bias"]}

    monkeypatch.setattr(concatenation, "fresh_classifier", recorded_classifier)
    spec = released_job(fixture, method, npz)
    path = SHARED / "methods" / "fixtures" / f"{fixture}.npz"
    silos = [silo_of_file(path, f"c{k}", features=f"x{k}", labels=f"y{k}") for k in range(CLIENTS)]
    answering = runners(spec, silos, path.parent)
    for runner in answering.values():
        runner.context = replace(runner.context, shuffle=False)
    return npz, model_of(federate(tmp_path, spec, answering))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@needs_fixtures
def test_the_whole_run_is_that_of_the_released_code(recorded: tuple[Fixture, Tree]) -> None:
    npz, model = recorded
    order = order_of(npz)
    for number, theirs in enumerate(order):
        close(model[f"encoder.{number}.1.weight"], npz[f"cluster{theirs}/enc/l.weight"])
        close(model[f"encoder.{number}.1.bias"], npz[f"cluster{theirs}/enc/l.bias"])
    close(model["classifier.weight"], in_our_order(npz["large_final/fc.weight"], order))
    close(model["classifier.bias"], npz["large_final/fc.bias"])


@needs_fixtures
def test_the_stacked_model_answers_as_the_released_one(recorded: tuple[Fixture, Tree]) -> None:
    npz, model = recorded
    probe = npz["probe_x"].reshape(len(npz["probe_x"]), -1)
    parts = [
        np.maximum(probe @ model[f"encoder.{n}.1.weight"].T + model[f"encoder.{n}.1.bias"], 0)
        for n in range(2)
    ]
    features = np.concatenate(parts, axis=1)
    close(features, in_our_order(npz["probe_feature"], order_of(npz)))
    close(features @ model["classifier.weight"].T + model["classifier.bias"], npz["probe_logits"])


@needs_fixtures
def test_the_warm_classifier_sums_the_clusters_logits() -> None:
    from fedsilo.methods.state import State

    npz = load_fixture("fedconcat_pieces")
    trees = {
        f"cluster/{n}": {"classifier.weight": npz[f"head{n}_w"], "classifier.bias": npz[f"head{n}_b"]}
        for n in range(3)
    }
    warm = concatenation.warm_classifier(State(trees))
    close(warm["classifier.weight"], npz["warm_w"])
    close(warm["classifier.bias"], npz["warm_b"])
    close(npz["probe"] @ warm["classifier.weight"].T + warm["classifier.bias"], npz["probe_logits"])


def skewed(tmp_path: Path, classes_of: Mapping[str, list[int]], samples: int = 12) -> list[Any]:
    """Silos with a few samples of each of their classes."""
    rng = np.random.default_rng(0)
    silos = []
    for name, classes in classes_of.items():
        labels = np.repeat(classes, samples)
        features = (rng.normal(0, 0.3, (len(labels), 6)) + np.eye(6)[labels % 6]).astype(np.float32)
        silos.append(silo_holding(tmp_path, name, features, labels.astype(np.int64)))
    return silos


def concatenated(
    tmp_path: Path, classes_of: Mapping[str, list[int]], method: str = "fedconcat", **config: Any
) -> Federation:
    config = {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2} | config
    privacy = {"minSamplesPerClass": config.pop("minimum", 1)}
    silos = skewed(tmp_path, classes_of)
    spec = job_spec(method, list(classes_of), 4, method={"config": config}, privacy=privacy)
    return federate(tmp_path, spec, runners(spec, silos, tmp_path))


def test_silos_with_the_same_classes_share_a_cluster(tmp_path: Path) -> None:
    federation = concatenated(tmp_path, {"a": [0, 1], "b": [2, 3], "c": [0, 1], "d": [2, 3]})
    member = federation.state.values["member"]
    assert member == {"silos/a": 0, "silos/b": 1, "silos/c": 0, "silos/d": 1}
    assert model_of(federation)["classifier.weight"].shape == (4, 2 * 5)
    assert federation.rounds == 1 + 4


def test_distributions_that_nobody_may_disclose_are_one_cluster(tmp_path: Path) -> None:
    federation = concatenated(tmp_path, {"a": [0, 1], "b": [2, 3]}, minimum=100)
    assert federation.state.values["clusters"] == 1
    assert model_of(federation)["classifier.weight"].shape == (4, 5)


def test_one_class_silos_and_a_class_missing_everywhere(tmp_path: Path) -> None:
    federation = concatenated(tmp_path, {"a": [0], "b": [1], "c": [2]}, warmStart=True)
    assert all(np.isfinite(array).all() for array in model_of(federation).values())


def test_the_elbow_finds_the_number_of_clusters(tmp_path: Path) -> None:
    groups = {
        f"{letter}{n}": classes
        for letter, classes in (("a", [0]), ("b", [1]), ("c", [2, 3]))
        for n in range(3)
    }
    federation = concatenated(tmp_path, groups, clusters=6, choice="elbow")
    assert federation.state.values["clusters"] == 3


@pytest.mark.parametrize("method", ["fedconcat", "fedconcat-id"])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_both_forms_run_and_have_their_rounds(tmp_path: Path, method: str, variant: str) -> None:
    classes = {"a": [0, 1], "b": [2, 3], "c": [0, 1]}
    federation = concatenated(tmp_path, classes, method, variant=variant)
    extra = 0 if (method, variant) == ("fedconcat-id", "released") else 1
    assert federation.rounds == 4 + extra
    phases = [line["phase"] for line in federation.history()]
    assert phases[-2:] == ["classifier", "classifier"]


def test_settings_cannot_widen_the_contract() -> None:
    from fedsilo.wire import ModelSignature

    signature, config = ModelSignature((), classes=3, feature=5), FedConcatConfig(clusters=2)
    assert concatenation.dimensions(signature, config, {"clusters": 1}) == {"stacked": 5}
    assert concatenation.dimensions(signature, config, {"clusters": 99}) == {"stacked": 10}
    assert concatenation.dimensions(signature, config, {}) == {"stacked": 10}


def test_a_manifest_is_told_what_does_not_add_up() -> None:
    spec = job_spec("fedconcat", 2, 5)
    config = FedConcatConfig(clusters=3, encoder_rounds=2, classifier_rounds=2)
    faults = registry.get("fedconcat").check(spec, config)
    assert [(path, problem) for path, _, problem, _ in faults] == [
        ("spec.training.rounds", "is not encoderRounds + classifierRounds = 4"),
        ("spec.method.config.clusters", "is more than the 2 silos of spec.silos.refs"),
    ]
