"""CReFF's halves; its arithmetic is checked against the released numbers in tests/unit/learning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fedsilo.engine.federation import Federation
from fedsilo.methods import registry
from fedsilo.methods.creff import CReFFServer
from fedsilo.methods.pieces.federated_features import CReFFConfig, match, retraining
from fedsilo.methods.pieces.gradients import Gradient, TrainWithGradients, mean_gradients
from fedsilo.methods.state import Tree
from tests.federate import federate, job_spec, model_of, runners, silo_of_file, skewed
from tests.fixture_networks import load_fixture
from tests.paths import needs_fixtures

SMALL = {"featuresPerClass": 4, "matchSteps": 5, "retrain": 20}


def job(
    tmp_path: Path, classes_of: dict[str, list[int]], minimum: int = 1, bias: bool = True, **config: Any
) -> Federation:
    silos = skewed(tmp_path, classes_of)
    spec = job_spec(
        "creff",
        list(classes_of),
        2,
        method={"config": SMALL | config},
        privacy={"minSamplesPerClass": minimum},
        model={"config": {"hidden": [5], "bias": bias}},
    )
    return federate(tmp_path, spec, runners(spec, silos, tmp_path))


@needs_fixtures
@pytest.mark.parametrize("released", [True, False])
def test_a_silos_gradients_are_the_recorded_class_means(released: bool) -> None:
    npz = load_fixture("creff_real_gradients")
    head = {"classifier.weight": npz["w"], "classifier.bias": npz["b"]}
    for label in (0, 4, 7):
        members = npz["z"][npz["y"] == label]
        weight, bias = TrainWithGradients(released).gradient(members, label, head, seed=1)
        np.testing.assert_allclose(weight, npz[f"g_w/{label}"], rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(bias, npz[f"g_b/{label}"], rtol=2e-5, atol=2e-6)


@needs_fixtures
def test_the_server_half_moves_features_as_the_released_code_does() -> None:
    npz = load_fixture("creff_feature_opt")
    config = CReFFConfig(
        variant="released",
        features_per_class=int(npz["per_class"]),
        match_steps=int(npz["steps"]),
        feature_learning_rate=float(npz["lr_feature"]),
    )
    sent: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for key in npz:
        if key.endswith("/w"):
            label = int(key.split("/")[1].removeprefix("class"))
            sent.setdefault(label, []).append((npz[key].astype(np.float32), npz[key[:-1] + "b"]))
    gradients = {
        label: Gradient(np.mean([w for w, _ in pairs], axis=0), np.mean([b for _, b in pairs], axis=0))
        for label, pairs in sent.items()
    }
    head = {"classifier.weight": npz["classifier_w"], "classifier.bias": npz["classifier_b"]}
    found = match(config, npz["features_before"].reshape(10, 3, 256), head, gradients)
    np.testing.assert_allclose(found.reshape(30, 256), npz["features_after"], rtol=2e-5, atol=2e-5)
    # Nobody disclosed class 9: its features do not move.
    np.testing.assert_array_equal(found[9].reshape(3, 256), npz["features_before"][27:])


@needs_fixtures
def test_models_are_averaged_by_samples_as_recorded() -> None:
    npz = load_fixture("creff_fusion")
    weights = npz["sizes"] / npz["sizes"].sum()
    np.testing.assert_allclose(weights[0] * npz["a0"] + weights[1] * npz["a1"], npz["fused"])


def test_the_evaluated_model_has_the_re_trained_head_and_the_averaged_extractor(tmp_path: Path) -> None:
    federation = job(tmp_path, {"a": [0, 1], "b": [2]})
    found, head, model = model_of(federation), federation.state.tree("head"), federation.state.tree("model")
    np.testing.assert_array_equal(found["classifier.weight"], head["classifier.weight"])
    np.testing.assert_array_equal(found["encoder.0.weight"], model["encoder.0.weight"])
    assert not np.array_equal(found["classifier.weight"], model["classifier.weight"])


def test_features_persist_and_those_of_undisclosed_classes_do_not_move(tmp_path: Path) -> None:
    server = CReFFServer(CReFFConfig.model_validate(SMALL))
    federation = job(tmp_path, {"a": [0, 1], "b": [1, 2]})
    context: Any = federation._context
    first = server.start(context).tree("features")["features"]
    last = federation.state.tree("features")["features"]
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
    federation = job(tmp_path, {"a": [0, 1], "b": [2, 3]}, minimum=100)
    assert "no silo disclosed gradients of a class: the federated features stay as they were" in caplog.text
    assert all(np.isfinite(array).all() for array in model_of(federation).values())
    sent = federation.history()[0]["bytes"]
    assert set(sent) == {"silos/a", "silos/b"}


def test_paper_and_released_differ_in_rate_steps_and_start() -> None:
    paper, released = (retraining(CReFFConfig(variant=variant), seed=0) for variant in ("paper", "released"))
    assert (paper.lr, paper.max_steps) == (0.1, 300)
    assert (released.lr, released.epochs, released.max_steps) == (0.01, 300, None)
    assert (paper.momentum, released.momentum) == (0, 0)


def test_local_training_and_averaging_are_fedavgs_and_never_see_the_head(tmp_path: Path) -> None:
    """The re-trained head is for gradients and for use: w goes its way as if there were none."""
    federation = job(tmp_path, {"a": [0, 1], "b": [2]})
    spec = job_spec("fedavg", ["a", "b"], 2)
    silos = [silo_of_file(tmp_path / f"{name}.npz", name) for name in "ab"]
    averaged = model_of(federate(tmp_path / "fedavg", spec, runners(spec, silos, tmp_path)))
    for name, array in federation.state.tree("model").items():
        np.testing.assert_array_equal(array, averaged[name])


@pytest.mark.parametrize(("variant", "sent"), [("paper", 1), ("released", 2)])
def test_the_biass_gradient_leaves_a_silo_only_where_it_is_used(variant: str, sent: int) -> None:
    """With it a rank-one gradient gives the feature itself, so the printed loss, which ignores it, never gets it."""
    config = CReFFConfig.model_validate({"variant": variant})
    payloads = registry.get("creff").steps(config)["train"].payloads
    assert len([payload for payload in payloads if payload.kind == "averaged_gradients"]) == sent


class Gradients:
    """Updates of two silos, of which the second lacks class 1."""

    silos = ("silos/a", "silos/b")
    sent: ClassVar[dict[str, Tree]] = {
        "silos/a": {"gradient.weight/0": np.full((2, 3), 1.0), "gradient.weight/1": np.full((2, 3), 5.0)},
        "silos/b": {"gradient.weight/0": np.full((2, 3), 3.0)},
    }

    def names(self, silo: str, kind: str) -> list[str]:
        return list(self.sent[silo])

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        assert set(weights.values()) == {1.0}
        first, second = self.sent.values()
        return {name: array + second.get(name, 0.0) for name, array in first.items()}


def test_a_classs_gradient_is_the_plain_mean_over_the_silos_that_sent_it() -> None:
    updates: Any = Gradients()
    found = mean_gradients(updates, released=False)
    assert {label: float(gradient.weight[0, 0]) for label, gradient in found.items()} == {0: 2.0, 1: 5.0}
    assert mean_gradients(updates, released=True) == {}, "the released form needs the bias's gradient too"
