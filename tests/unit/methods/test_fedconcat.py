"""FedConcat and FedConcat-ID against the numbers of the released code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.learning.models import Model
from fedsilo.methods import registry
from fedsilo.methods.fedconcat import concatenation
from fedsilo.methods.fedconcat import server as fedconcat_server
from fedsilo.methods.fedconcat.clustering import cluster_silos, renumber
from fedsilo.methods.fedconcat.distributions import distributions_of
from fedsilo.methods.interface import Exchange, Phase
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import (
    federate,
    job_spec,
    model_of,
    runners,
    silo_of_file,
)
from tests.reference_numbers import Numbers
from tests.unit.methods.harness import ObservedSilo, answers, server_context

CLIENTS = 6


def network(input_shape: tuple[int, ...], classes: int, fixture: str) -> Model:
    """Network of the fixture: 6 -> 84, ReLU, -> 10."""
    npz = reference_numbers.load(fixture)
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(6, 84), nn.ReLU()), nn.Linear(84, classes))
    own = {
        "encoder.1.weight": "init/enc/l.weight",
        "encoder.1.bias": "init/enc/l.bias",
        "classifier.weight": "init/cls/fc.weight",
        "classifier.bias": "init/cls/fc.bias",
    }
    model.load_state_dict({name: torch.tensor(npz[key]) for name, key in own.items()})
    return model


def released_job(fixture: str, method: str, npz: Numbers) -> Any:
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


def order_of(npz: Numbers) -> list[int]:
    """Recorded number of each of our clusters, which are numbered by their first silo."""
    ours = renumber(npz["assign"])
    return [int(npz["assign"][np.flatnonzero(ours == number)[0]]) for number in range(ours.max() + 1)]


def in_our_order(weight: np.ndarray, order: list[int]) -> np.ndarray:
    """Columns of a recorded large classifier, permuted as our clusters are."""
    return np.concatenate([weight[:, 84 * number : 84 * (number + 1)] for number in order], axis=1)


@dataclass(frozen=True)
class Run:
    """A finished job over a fixture, which began stage 3 where the recorded run began it.

    :ivar rows: the label distributions that it clustered by.
    :ivar silos: the tasks and replies of each.
    """

    npz: Numbers
    engine: RoundEngine
    rows: np.ndarray
    silos: list[ObservedSilo]

    @property
    def member(self) -> list[int]:
        """Number of each silo's cluster."""
        return list(self.engine.state.values["member"].values())


@pytest.fixture(
    scope="module", params=[("fedconcat_e2e", "fedconcat"), ("fedconcat_id_e2e", "fedconcat-id")], ids=str
)
def recorded_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A job over a fixture, which all tests look at."""
    fixture, method = request.param
    npz = reference_numbers.load(fixture)
    rows: list[np.ndarray] = []

    def recorded_classifier(*_: Any) -> Tree:
        weight = in_our_order(npz["large_init/fc.weight"], order_of(npz))
        return {"classifier.weight": weight, "classifier.bias": npz["large_init/fc.bias"]}

    def record_clustering(job: Any, config: Any, found: dict[str, np.ndarray]) -> dict[str, int]:
        rows.append(np.stack(list(found.values())))
        return cluster_silos(job, config, found)

    spec = released_job(fixture, method, npz)
    path = reference_numbers.path(fixture)
    silos = [silo_of_file(path, f"c{k}", features=f"x{k}", labels=f"y{k}") for k in range(CLIENTS)]
    answering = runners(spec, silos, path.parent)
    for runner in answering.values():
        runner.context = replace(runner.context, shuffle=False)
    observed = {silo: ObservedSilo(runner) for silo, runner in answering.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concatenation, "fresh_classifier", recorded_classifier)
        patch.setattr(fedconcat_server, "cluster_silos", record_clustering)
        engine = federate(tmp_path_factory.mktemp(fixture), spec, observed)
    (clustered,) = rows
    return Run(npz, engine, clustered, list(observed.values()))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def test_label_distributions_and_clusters_are_those_of_the_released_code(recorded_run: Run) -> None:
    """Counted they are exact; inferred ones agree as two draws of 10,000 random inputs do."""
    npz = recorded_run.npz
    if "inferred_distribution" in npz:
        np.testing.assert_allclose(recorded_run.rows, npz["inferred_distribution"], atol=1e-2)
        # They are no label distributions, and differ between silos by more than the tolerance.
        assert np.abs(recorded_run.rows - npz["label_distribution"]).max() > 0.1
        assert np.ptp(npz["inferred_distribution"], axis=0).max() > 0.05
    else:
        np.testing.assert_allclose(recorded_run.rows, npz["label_distribution"], rtol=1e-12)
    assert recorded_run.member == renumber(npz["assign"]).tolist()


def test_the_first_rounds_models_are_kept_and_averaged_inside_each_cluster(recorded_run: Run) -> None:
    """Models are averaged by samples inside a cluster; with distributions inferred from the models too, and T_e counts
    that round."""
    assert [line["phase"] for line in recorded_run.engine.history()][-5:] == ["encoders"] * 2 + [
        "classifier"
    ] * 3
    answered = [silo.seen["train", 1][1] for silo in recorded_run.silos]
    for number, silo in zip(recorded_run.member, recorded_run.silos, strict=True):
        mates = [reply for mate, reply in zip(recorded_run.member, answered, strict=True) if mate == number]
        n = sum(reply.samples for reply in mates)
        given = silo.seen["train", 2][0].trees["model"]
        for name, array in given.items():
            close(array, np.sum([reply.samples / n * reply.tensors[name] for reply in mates], axis=0))
        start = silo.seen["train", 1][0].trees["model"]
        np.testing.assert_array_equal(start["encoder.1.weight"], recorded_run.npz["init/enc/l.weight"])


def test_the_whole_run_is_that_of_the_released_code(recorded_run: Run) -> None:
    npz, model = recorded_run.npz, model_of(recorded_run.engine)
    order = order_of(npz)
    for number, theirs in enumerate(order):
        close(model[f"encoder.{number}.1.weight"], npz[f"cluster{theirs}/enc/l.weight"])
        close(model[f"encoder.{number}.1.bias"], npz[f"cluster{theirs}/enc/l.bias"])
        kept = recorded_run.engine.state.tree(f"cluster/{number}")
        close(kept["classifier.weight"], npz[f"cluster{theirs}/cls/fc.weight"])
        close(kept["classifier.bias"], npz[f"cluster{theirs}/cls/fc.bias"])
    close(model["classifier.weight"], in_our_order(npz["large_final/fc.weight"], order))
    close(model["classifier.bias"], npz["large_final/fc.bias"])


def test_the_stacked_model_answers_as_the_released_one(recorded_run: Run) -> None:
    npz, model = recorded_run.npz, model_of(recorded_run.engine)
    probe = npz["probe_x"].reshape(len(npz["probe_x"]), -1)
    parts = [
        np.maximum(probe @ model[f"encoder.{n}.1.weight"].T + model[f"encoder.{n}.1.bias"], 0)
        for n in range(2)
    ]
    features = np.concatenate(parts, axis=1)
    close(features, in_our_order(npz["probe_feature"], order_of(npz)))
    close(features @ model["classifier.weight"].T + model["classifier.bias"], npz["probe_logits"])


@pytest.mark.parametrize(
    ("variant", "weights", "mean"),
    [("paper", None, 7.5), ("released", None, 5.0), ("released", "samples", 7.5), ("paper", "uniform", 5.0)],
)
def test_stage_3_is_averaged_by_the_variants_rule_unless_the_job_names_one(
    variant: str, weights: str | None, mean: float
) -> None:
    spec = job_spec("fedconcat", 2, method={"config": {"variant": variant}}, aggregation={"weights": weights})
    half = registry.bind(spec).server()
    exchange = Exchange(Phase("classifier", 1, "classify"), 3, 1, 1)
    sent = {f"silos/s{k}": {"model": {"w": np.full(2, 10.0 * k, np.float32)}} for k in range(2)}
    job = server_context(spec, ModelSignature((), 4, 5))
    state = half.aggregate(job, State(), exchange, answers(sent, {"silos/s0": 1, "silos/s1": 3}))
    assert state.tree("classifier")["w"].tolist() == [mean, mean]


def test_the_warm_classifier_sums_the_clusters_logits() -> None:
    npz = reference_numbers.load("fedconcat_pieces")
    trees = {
        f"cluster/{n}": {"classifier.weight": npz[f"head{n}_w"], "classifier.bias": npz[f"head{n}_b"]}
        for n in range(3)
    }
    warm = concatenation.warm_classifier(State(trees))
    close(warm["classifier.weight"], npz["warm_w"])
    close(warm["classifier.bias"], npz["warm_b"])
    close(npz["probe"] @ warm["classifier.weight"].T + warm["classifier.bias"], npz["probe_logits"])


def test_counts_below_the_minimum_count_as_not_disclosed() -> None:
    """No honest silo sends them; negative ones could make a row that is not finite."""

    class Dishonest:
        silos = ("a", "b")

        def tensors(self, silo: str, kind: str) -> Tree:
            return {
                "count/0": np.array(5 if silo == "a" else -5),
                "count/1": np.array(-5 if silo == "a" else 5),
            }

    context = SimpleNamespace(signature=SimpleNamespace(classes=2), spec=job_spec("fedconcat", 2))
    rows = distributions_of(cast("Any", context), cast("Any", Dishonest()))
    assert {silo: row.tolist() for silo, row in rows.items()} == {"a": [1.0, 0.0], "b": [0.0, 1.0]}
