"""CReFF's halves against the released numbers, and what is its own; for its loss, see test_creff_gradients.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.context import JobContext
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.learning.models import build_model, load_tree
from fedsilo.methods import registry
from fedsilo.methods.creff import server as creff_server
from fedsilo.methods.creff import silo as creff_silo
from fedsilo.methods.creff.config import CReFFConfig
from fedsilo.methods.creff.federated_features import retraining
from fedsilo.methods.creff.gradients import mean_gradients
from fedsilo.methods.creff.server import CReFFServer
from fedsilo.methods.creff.siamese import augmented_images
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature, TensorSpec
from tests import reference_numbers
from tests.federate import (
    bound_method,
    federate,
    job_spec,
    model_of,
    runners,
    silo_holding,
    silo_of_file,
    skewed_silos,
)
from tests.unit.methods.harness import IDENTITY, ROUND, answers, assert_close, server_context

SMALL_CONFIG = {"featuresPerClass": 4, "matchSteps": 5, "retrain": 20}


def job(
    tmp_path: Path, classes_of: dict[str, list[int]], minimum: int = 1, bias: bool = True, **config: Any
) -> RoundEngine:
    silos = skewed_silos(tmp_path, classes_of)
    spec = job_spec(
        "creff",
        list(classes_of),
        2,
        method={"config": SMALL_CONFIG | config},
        privacy={"minSamplesPerClass": minimum},
        model={"config": {"hidden": [5], "bias": bias}},
    )
    return federate(tmp_path, spec, runners(spec, silos, tmp_path))


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_what_a_silo_sends_are_the_recorded_class_means(tmp_path: Path, variant: str) -> None:
    npz = reference_numbers.load("creff_real_gradients")
    spec = job_spec(
        "creff",
        ["a"],
        method={"config": {"variant": variant}},
        model={"name": IDENTITY, "config": {}},
        data={"classes": 10, "inputShape": [256]},
    )
    (runner,) = runners(spec, [silo_holding(tmp_path, "a", npz["z"], npz["y"])], tmp_path).values()
    head = {"classifier.weight": npz["w"], "classifier.bias": npz["b"]}
    trees = {"model": runner.context.initial_model(), "head": head}
    sent = runner.run(SiloTask("train", "train", 1, 1, 1, trees, {}), State()).tensors
    for label in (0, 4, 7):
        assert_close({"w": sent[f"gradient.weight/{label}"]}, {"w": npz[f"g_w/{label}"]})
        if variant == "released":
            assert_close({"b": sent[f"gradient.bias/{label}"]}, {"b": npz[f"g_b/{label}"]})
    assert {name for name in sent if name.startswith("gradient.weight")} == {
        f"gradient.weight/{label}" for label in (0, 4, 7)
    }


PAYLOADS = bound_method("creff", config={"variant": "released"}).steps()["train"].payloads
"""What silos send in the released form, which is also all that the printed one has them send."""


def aggregated_state(
    config: dict[str, Any],
    features: np.ndarray,
    head: Tree,
    sent: Mapping[str, Mapping[str, Tree]],
    samples: Mapping[str, int] | None = None,
) -> State:
    """State of the released form's server half after one round from these features and this head."""
    classes, amount, width = features.shape
    settings = {"variant": "released", "featuresPerClass": amount, "retrain": 1} | config
    spec = job_spec("creff", [silo.removeprefix("silos/") for silo in sent], method={"config": settings})
    bias = (TensorSpec("classifier.bias", (classes,), "float32"),)
    job = server_context(spec, ModelSignature(bias, classes, width))
    trees = {"model": sent["silos/c0"]["model"], "head": head, "features": {"features": features}}
    half = CReFFServer(CReFFConfig.model_validate(settings))
    return half.aggregate(job, State(trees), ROUND, answers(sent, samples, payloads=PAYLOADS))


NO_MODEL: Tree = {"w": np.zeros(1, np.float32)}


def test_the_server_half_moves_features_as_the_released_code_does() -> None:
    """Towards the mean of what three clients sent, each of some classes."""
    npz = reference_numbers.load("creff_feature_opt")
    sent: dict[str, dict[str, Tree]] = {f"silos/c{k}": {"model": NO_MODEL} for k in range(3)}
    for key in npz:
        if key.startswith("client"):
            client, label, part = re.fullmatch(r"client(\d)/class(\d)/([wb])", key).groups()  # type: ignore[union-attr]
            name = {"w": "gradient.weight", "b": "gradient.bias"}[part]
            gradients = sent[f"silos/c{client}"].setdefault("averaged_gradients", {})
            gradients[f"{name}/{label}"] = npz[key].astype(np.float32)
    config = {"matchSteps": int(npz["steps"]), "featureLearningRate": float(npz["lr_feature"])}
    head = {"classifier.weight": npz["classifier_w"], "classifier.bias": npz["classifier_b"]}
    before = npz["features_before"].reshape(10, int(npz["per_class"]), 256)
    found = aggregated_state(config, before, head, sent).tree("features")["features"]
    np.testing.assert_allclose(found.reshape(30, 256), npz["features_after"], rtol=2e-5, atol=2e-5)
    # Nobody disclosed class 9: its features do not move.
    np.testing.assert_array_equal(found[9], before[9])
    assert not np.allclose(found[:9], before[:9], atol=1e-3)


def test_the_server_half_re_trains_the_head_as_the_released_code_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the recorded random layer, which is the only thing that is put in."""
    npz = reference_numbers.load("creff_retrain")
    start = {"classifier.weight": npz["w_init"], "classifier.bias": npz["b_init"]}
    monkeypatch.setattr(creff_server, "new_classifier", lambda *_: start)
    features = npz["features"].reshape(10, 3, 256)
    assert npz["labels"].tolist() == np.repeat(np.arange(10), 3).tolist()
    config = {"retrain": int(npz["epochs"]), "retrainBatchSize": len(npz["features"])}
    assert retraining(CReFFConfig(variant="released"), seed=0).lr == float(npz["lr"])
    last = {name: np.zeros_like(array) for name, array in start.items()}
    state = aggregated_state(config, features, last, {"silos/c0": {"model": NO_MODEL}})
    recorded = {"classifier.weight": npz["w_after"], "classifier.bias": npz["b_after"]}
    assert_close(state.tree("head"), recorded)


def test_models_are_averaged_by_samples_as_recorded() -> None:
    npz = reference_numbers.load("creff_fusion")
    sent = {f"silos/c{k}": {"model": {"w": npz[f"a{k}"]}} for k in range(2)}
    samples = {f"silos/c{k}": int(npz["sizes"][k]) for k in range(2)}
    head = {"classifier.weight": np.zeros((2, 3), np.float32), "classifier.bias": np.zeros(2, np.float32)}
    state = aggregated_state({}, np.ones((2, 1, 3), np.float32), head, sent, samples)
    assert_close(state.tree("model"), {"w": npz["fused"]})


def test_the_evaluated_model_has_the_re_trained_head_and_the_averaged_extractor(tmp_path: Path) -> None:
    engine = job(tmp_path, {"a": [0, 1], "b": [2]})
    found, head, model = model_of(engine), engine.state.tree("head"), engine.state.tree("model")
    np.testing.assert_array_equal(found["classifier.weight"], head["classifier.weight"])
    np.testing.assert_array_equal(found["encoder.0.weight"], model["encoder.0.weight"])
    assert not np.array_equal(found["classifier.weight"], model["classifier.weight"])


def test_features_persist_and_those_of_undisclosed_classes_do_not_move(tmp_path: Path) -> None:
    server = CReFFServer(CReFFConfig.model_validate(SMALL_CONFIG))
    engine = job(tmp_path, {"a": [0, 1], "b": [1, 2]})
    context: Any = engine._workflow._context
    first = server.start(context).tree("features")["features"]
    last = engine.state.tree("features")["features"]
    moved = [not np.array_equal(first[label], last[label]) for label in range(4)]
    assert moved == [True, True, True, False]


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("bias", [True, False])
def test_both_forms_run_with_and_without_a_bias(tmp_path: Path, variant: str, bias: bool) -> None:
    model = model_of(job(tmp_path, {"a": [0, 1], "b": [2, 3]}, variant=variant, bias=bias))
    assert ("classifier.bias" in model) == bias
    assert all(np.isfinite(array).all() for array in model.values())


def test_no_class_that_may_be_disclosed_leaves_the_features_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = job(tmp_path, {"a": [0, 1], "b": [2, 3]}, minimum=100)
    assert "no silo disclosed gradients of a class: the federated features stay as they were" in caplog.text
    assert all(np.isfinite(array).all() for array in model_of(engine).values())
    sent = engine.history()[0]["bytes"]
    assert set(sent) == {"silos/a", "silos/b"}


def test_paper_and_released_differ_in_rate_steps_and_start() -> None:
    paper, released = (retraining(CReFFConfig(variant=variant), seed=0) for variant in ("paper", "released"))
    assert (paper.lr, paper.max_steps) == (0.1, 300)
    assert (released.lr, released.epochs, released.max_steps) == (0.01, 300, None)
    assert (paper.momentum, released.momentum) == (0, 0)


def test_local_training_and_averaging_are_fedavgs_and_never_see_the_head(tmp_path: Path) -> None:
    """The re-trained head is for gradients and for use: w goes its way as if there were none."""
    engine = job(tmp_path, {"a": [0, 1], "b": [2]})
    spec = job_spec("fedavg", ["a", "b"], 2)
    silos = [silo_of_file(tmp_path / f"{name}.npz", name) for name in "ab"]
    averaged = model_of(federate(tmp_path / "fedavg", spec, runners(spec, silos, tmp_path)))
    for name, array in engine.state.tree("model").items():
        np.testing.assert_array_equal(array, averaged[name])


@pytest.mark.parametrize(("variant", "sent"), [("paper", 1), ("released", 2)])
def test_the_biass_gradient_leaves_a_silo_only_where_it_is_used(variant: str, sent: int) -> None:
    """With it a rank-one gradient gives the feature itself, so the printed loss, which ignores it, never gets it."""
    payloads = bound_method("creff", config={"variant": variant}).steps()["train"].payloads
    assert len([payload for payload in payloads if payload.kind == "averaged_gradients"]) == sent


def test_a_classs_gradient_is_the_plain_mean_over_the_silos_that_sent_it() -> None:
    """Sample counts do not weight the mean; the second silo lacks class 1."""
    first = {"gradient.weight/0": np.full((2, 3), 1.0), "gradient.weight/1": np.full((2, 3), 5.0)}
    second = {"gradient.weight/0": np.full((2, 3), 3.0)}
    sent = {"silos/a": {"averaged_gradients": first}, "silos/b": {"averaged_gradients": second}}
    updates = answers(sent, {"silos/a": 1, "silos/b": 9}, payloads=PAYLOADS)
    found = mean_gradients(updates, released=False)
    assert {label: float(gradient.weight[0, 0]) for label, gradient in found.items()} == {0: 2.0, 1: 5.0}
    assert mean_gradients(updates, released=True) == {}, "the released form needs the bias's gradient too"


NO_TREES: Mapping[str, Tree] = {}


def images(tmp_path: Path, trees: Mapping[str, Tree] = NO_TREES, **config: Any) -> Tree:
    """What a silo with forty images of class 1 and six of class 3 sends in round 1, which hands out further trees."""
    rng = np.random.default_rng(0)
    silo = silo_holding(
        tmp_path, "a", rng.random((46, 3, 8, 6), np.float32), np.repeat([1, 3], [40, 6]).astype(np.int64)
    )
    spec = job_spec(
        "creff",
        ["a"],
        method={"config": {"variant": "released"} | config},
        model={"name": "mlp", "config": {"hidden": [5]}},
        data={"inputShape": [3, 8, 6], "preprocessing": {"standardise": True} if trees else None},
    )
    (runner,) = runners(spec, [silo], tmp_path).values()
    model = runner.context.initial_model()
    head = {name: array for name, array in model.items() if name.startswith("classifier.")}
    return runner.run(
        SiloTask("train", "train", 1, 1, 1, {"model": model, "head": head, **trees}, {}), State()
    ).tensors


def test_gradients_of_augmented_draws_are_their_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten draws of at most 32 images of a class, each changed as a whole; by autograd, image by image."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def record_augmented(drawn: torch.Tensor, seed: int) -> torch.Tensor:
        seen.append((drawn, augmented_images(drawn, seed)))
        return seen[-1][1]

    monkeypatch.setattr(creff_silo, "augmented_images", record_augmented)
    sent = images(tmp_path)
    assert [len(drawn) for drawn, _ in seen] == [32] * 10 + [6] * 10
    assert len({drawn[:, 0, 0, 0].sum().item() for drawn, _ in seen[:10]}) > 1
    assert any(not torch.equal(drawn, changed) for drawn, changed in seen)
    spec = job_spec("creff", ["a"], data={"inputShape": [3, 8, 6]})
    network = build_model(spec.model, spec.data, seed=0)
    load_tree(network, _initial_tree(spec))
    for label, draws in ((1, seen[:10]), (3, seen[10:])):
        total = torch.zeros(4, 5)
        for _, changed in draws:
            for image in changed:
                loss = torch.nn.functional.cross_entropy(network(image[None].clone()), torch.tensor([label]))
                (found,) = torch.autograd.grad(loss, [network.classifier.weight])
                total += found / len(changed) / 10
        assert_close({"g": sent[f"gradient.weight/{label}"]}, {"g": total.numpy()})


def _initial_tree(spec: FederatedJobSpec) -> Tree:
    return JobContext.of(registry.bind(spec), ["silos/a"]).initial_model()


def test_dsa_is_reproducible_and_of_the_real_gradients_alone(tmp_path: Path) -> None:
    one, other, without = images(tmp_path), images(tmp_path, dsa=True), images(tmp_path, dsa=False)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
        assert np.array_equal(array, without[name]) == (not name.startswith("gradient.")), name


def test_dsa_acts_on_images_as_the_encoder_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the job's preprocessing, which is not done twice then."""
    seen: list[torch.Tensor] = []

    def record_drawn(drawn: torch.Tensor, seed: int) -> torch.Tensor:
        seen.append(drawn)
        return drawn

    monkeypatch.setattr(creff_silo, "augmented_images", record_drawn)
    numbers = {"fill": np.zeros(3), "mean": np.full(3, 0.5), "scale": np.full(3, 0.25)}
    standardised = images(tmp_path, trees={"preprocessing": numbers})
    assert min(drawn.min().item() for drawn in seen) < -1.9
    assert max(drawn.max().item() for drawn in seen) > 1.9
    plain = images(tmp_path, trees={"preprocessing": numbers}, dsa=False)
    # Each draw of the class of six has all of them.
    assert_close(*({"g": sent["gradient.weight/3"]} for sent in (standardised, plain)))


def test_only_images_of_the_released_form_are_augmented() -> None:
    picture = {"inputShape": [3, 8, 8]}
    assert bound_method("creff", config={"variant": "released"}, data=picture).augments  # type: ignore[attr-defined]
    for config, data in (
        ({}, picture),
        ({"variant": "released"}, {}),
        ({"variant": "released", "dsa": False}, picture),
    ):
        assert not bound_method("creff", config=config, data=data).augments  # type: ignore[attr-defined]


def test_dsa_is_refused_where_it_has_no_meaning() -> None:
    picture = {"inputShape": [3, 8, 8]}
    for config, data, remedy in (
        ({"dsa": True}, picture, "write variant: released, or remove it"),
        ({"dsa": True, "variant": "released"}, {}, "remove it"),
    ):
        (fault,) = bound_method("creff", config=config, data=data).check()
        assert (fault[0], fault[3]) == ("spec.method.config.dsa", remedy)
    assert bound_method("creff", config={"dsa": True, "variant": "released"}, data=picture).check() == []
