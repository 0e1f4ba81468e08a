"""CCVR's pooled class statistics, and calibration after another method."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from fedsilo.api.faults import ManifestFaults
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.methods import registry
from fedsilo.methods.ccvr import server as ccvr_server
from fedsilo.methods.ccvr.config import CCVRConfig, Covariance
from fedsilo.methods.ccvr.server import calibrate
from fedsilo.methods.ccvr.statistics import ClassPool, gaussian_features
from fedsilo.methods.ccvr.virtual import virtual_features
from fedsilo.methods.components.class_moments import spread_of
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.moments import Spread
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload, Step
from fedsilo.methods.traits import AveragingTraits
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding, skewed_silos
from tests.unit.methods.harness import IDENTITY, ObservedSilo, assert_close, server_context


def pool_of(parts: list[np.ndarray], covariance: Covariance = "full") -> ClassPool:
    """Pool the local statistics of the silos' features of one class."""
    width = parts[0].shape[1]
    pooled = ClassPool(0, np.zeros(width), np.zeros((width, width) if covariance == "full" else width))
    for part in parts:
        pooled.merge(
            len(part), part.mean(axis=0), spread_of(part, Spread("covariance", covariance == "diagonal"))
        )
    return pooled


def test_pooling_is_exact_where_the_printed_formula_is() -> None:
    npz = reference_numbers.load("ccvr_statistics")
    for label in range(3):
        parts = [npz[f"z{k}"][npz[f"y{k}"] == label] for k in range(4)]
        pooled = pool_of([part for part in parts if len(part)])
        np.testing.assert_allclose(pooled.mean, npz["pooled_mean"][label], rtol=1e-8)
        np.testing.assert_allclose(
            pooled.covariance, npz["pooled_cov_unbiased"][label], rtol=1e-8, atol=1e-10
        )
        # What others feed into the formula, biased local covariances, is visibly too small.
        assert np.abs(pooled.covariance - npz["flbench_cov"][label]).max() > 0.1


def test_local_statistics_are_unbiased_and_zero_for_one_sample() -> None:
    npz = reference_numbers.load("ccvr_statistics")
    for key in npz:
        if key.startswith("cov_unbiased/"):
            client, label = key.split("/")[1:]
            part = npz[f"z{client}"][npz[f"y{client}"] == int(label)]
            np.testing.assert_allclose(spread_of(part, Spread("covariance")), npz[key], rtol=1e-8, atol=1e-10)


def test_what_silos_disclose_and_the_aggregator_pools_are_the_recorded_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole job whose features are its inputs; they are float32, unlike the recorded ones."""
    npz = reference_numbers.load("ccvr_statistics")
    names = [f"s{k}" for k in range(4)]
    silos = [silo_holding(tmp_path, f"s{k}", npz[f"z{k}"].astype(np.float32), npz[f"y{k}"]) for k in range(4)]
    data = {"classes": 3, "inputShape": [4]}
    spec = job_spec("ccvr", names, data=data, model={"name": IDENTITY, "config": {}})
    observed = {silo: ObservedSilo(runner) for silo, runner in runners(spec, silos, tmp_path).items()}
    pools: list[dict[int, ClassPool]] = []

    def record_calibration(job: Any, config: Any, model: Tree, pooled: dict[int, ClassPool]) -> Tree:
        pools.append(pooled)
        return calibrate(job, config, model, pooled)

    monkeypatch.setattr(ccvr_server, "calibrate", record_calibration)
    federate(tmp_path, spec, observed)
    for k, silo in enumerate(observed.values()):
        sent = silo.seen["statistics", 1][1].tensors
        for label in range(3):
            if npz[f"n/{k}/{label}"] == 0:
                assert f"count/{label}" not in sent
                continue
            assert sent[f"count/{label}"] == npz[f"n/{k}/{label}"]
            assert_close({"mean": sent[f"mean/{label}"]}, {"mean": npz[f"mean/{k}/{label}"]})
            recorded = npz[f"cov_unbiased/{k}/{label}"]  # zero for the silo with a single sample
            np.testing.assert_allclose(
                sent[f"covariance/{label}"], recorded, atol=2e-5 * np.abs(recorded).max()
            )
    (pooled,) = pools
    for label in range(3):
        assert_close({"mean": pooled[label].mean}, {"mean": npz["pooled_mean"][label]})
        assert_close({"cov": pooled[label].covariance}, {"cov": npz["pooled_cov_unbiased"][label]})


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    width=st.integers(1, 5),
    rank=st.integers(0, 5),
    shift=st.floats(-100, 100),
    seed=st.integers(0, 2**32 - 1),
)
def test_pooled_covariance_is_that_of_the_pooled_features(
    sizes: list[int], width: int, rank: int, shift: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    # A rank below the width makes every covariance singular.
    mixing = rng.normal(size=(rank, width))
    parts = [rng.normal(size=(size, rank)) @ mixing + shift * rng.normal(size=width) for size in sizes]
    all_features = np.concatenate(parts)
    wanted = (
        np.cov(all_features, rowvar=False).reshape(width, width)
        if len(all_features) > 1
        else np.zeros((width, width))
    )
    scale = max(np.abs(wanted).max(), 1.0)
    np.testing.assert_allclose(pool_of(parts).covariance / scale, wanted / scale, atol=1e-6)
    diagonal = pool_of(parts, "diagonal").covariance
    np.testing.assert_allclose(diagonal / scale, np.diag(wanted) / scale, atol=1e-6)
    drawn = gaussian_features(pool_of(parts), 7, None, rng)
    assert drawn.shape == (7, width)
    assert np.isfinite(drawn).all()


def test_virtual_features_have_the_pooled_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    part = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)) + 5
    pooled = pool_of([part])
    drawn = gaussian_features(pooled, 200_000, None, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), pooled.mean, atol=0.03)
    np.testing.assert_allclose(np.cov(drawn, rowvar=False), pooled.covariance, atol=0.1)
    isotropic = gaussian_features(pooled, 200_000, 4.0, rng)
    np.testing.assert_allclose(np.cov(isotropic, rowvar=False), 4 * np.eye(3), atol=0.1)


def calibrated_job(
    tmp_path: Path, classes_of: dict[str, list[int]], minimum: int = 1, **config: Any
) -> RoundEngine:
    silos = skewed_silos(tmp_path, classes_of)
    spec = job_spec(
        "ccvr",
        list(classes_of),
        2,
        method={"config": config},
        privacy={"minSamplesPerClass": minimum},
        participation={"fraction": 0.5},
    )
    return federate(tmp_path, spec, runners(spec, silos, tmp_path))


def test_calibration_asks_every_silo_and_changes_the_classifier_alone(tmp_path: Path) -> None:
    engine = calibrated_job(tmp_path, {"a": [0, 1], "b": [2, 3]})
    last = engine.history()[-1]
    assert (last["phase"], len(last["samples"]), engine.rounds) == ("calibration", 2, 3)
    trained, found = engine.state.tree("model"), model_of(engine)
    for name, array in trained.items():
        assert np.array_equal(array, found[name]) == name.startswith("encoder."), name


@pytest.mark.parametrize("covariance", ["full", "diagonal", "none"])
@pytest.mark.parametrize("tukey", [None, 0.5, 0])
def test_every_form_is_finite(tmp_path: Path, covariance: str, tukey: float | None) -> None:
    engine = calibrated_job(
        tmp_path, {"a": [0, 1], "b": [1, 2]}, covariance=covariance, relu=tukey is not None, tukeyBeta=tukey
    )
    assert all(np.isfinite(array).all() for array in model_of(engine).values())


def test_a_class_that_nobody_discloses_keeps_its_weights(tmp_path: Path) -> None:
    engine = calibrated_job(tmp_path, {"a": [0, 1], "b": [1, 2]})
    trained, found = engine.state.tree("model"), model_of(engine)
    np.testing.assert_array_equal(found["classifier.weight"][3], trained["classifier.weight"][3])
    assert not np.array_equal(found["classifier.weight"][0], trained["classifier.weight"][0])


def test_without_any_disclosed_class_the_model_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = calibrated_job(tmp_path, {"a": [0, 1], "b": [1, 2]}, minimum=100)
    assert "no silo disclosed statistics of a class: the classifier stays as it was trained" in caplog.text
    trained, found = engine.state.tree("model"), model_of(engine)
    assert all(np.array_equal(trained[name], found[name]) for name in trained)


def test_it_follows_a_method_that_yields_one_model_and_no_other(tmp_path: Path) -> None:
    engine = calibrated_job(
        tmp_path, {"a": [0, 1], "b": [1, 2]}, after={"name": "creff", "config": {"matchSteps": 2}}
    )
    assert [line["phase"] for line in engine.history()] == ["train", "train", "calibration"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "fedconcat"}, "name"),
        ({"name": "ccvr"}, "name"),
        ({"name": "nothing"}, "name"),
        ({"name": "fedavg", "config": {"unknown": 1}}, "config.unknown"),
    ]
    for after, path in wrong:
        with pytest.raises(ManifestFaults) as caught:
            bound_method("ccvr", config={"after": after})
        assert [fault.path for fault in caught.value.faults] == [f"spec.method.config.after.{path}"]
    assert [fault[0] for fault in bound_method("ccvr", config={"tukeyBeta": 0.5}).check()] == [
        "spec.method.config.tukeyBeta"
    ]
    assert bound_method("ccvr").check() == []


def test_virtual_features_are_drawn_in_proportion_to_the_classes_where_asked_for() -> None:
    """M_c = M C N_c / |D|, and one of a class that is too rare for one."""
    counts = {0: 900, 2: 99, 3: 1}
    rng = np.random.default_rng(0)
    pooled = {label: pool_of([rng.normal(size=(count, 2))]) for label, count in counts.items()}
    for proportional, amounts in ((False, [10, 0, 10, 10]), (True, [27, 0, 3, 1])):
        config = CCVRConfig(virtual_per_class=10, proportional=proportional)
        features, labels = virtual_features(config, pooled, seed=0)
        assert np.bincount(labels).tolist() == amounts
        assert features.shape == (sum(amounts), 2)


def test_the_calibration_has_an_optimizer_of_its_own(tmp_path: Path) -> None:
    """One step on a single virtual feature of each class, without spread: SGD with momentum and L2 by hand."""
    settings = {"covariance": "none", "sharedVariance": 1e-30, "virtualPerClass": 1, "learningRate": 0.5}
    config = CCVRConfig.model_validate(
        settings | {"momentum": 0.5, "weightDecay": 0.1, "batchSize": 2, "epochs": 2}
    )
    rng = np.random.default_rng(0)
    means = rng.normal(size=(2, 3))
    pooled = {label: ClassPool(1, means[label], np.zeros(3)) for label in range(2)}
    weight, bias = rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=2).astype(np.float32)
    job = server_context(job_spec("ccvr", ["a"]), ModelSignature((), classes=2, feature=3))
    found = calibrate(job, config, {"classifier.weight": weight, "classifier.bias": bias}, pooled)
    w, b = weight.astype(float), bias.astype(float)
    w_velocity, b_velocity = np.zeros((2, 3)), np.zeros(2)
    for _ in range(2):
        scores = np.exp(means @ w.T + b)
        errors = (scores / scores.sum(axis=1, keepdims=True) - np.eye(2)) / 2
        w_velocity = 0.5 * w_velocity + errors.T @ means + 0.1 * w
        b_velocity = 0.5 * b_velocity + errors.sum(axis=0) + 0.1 * b
        w, b = w - 0.5 * w_velocity, b - 0.5 * b_velocity
    assert_close(found, {"classifier.weight": w, "classifier.bias": b})


class WideMethod(FedAvg):
    """A method with a dimension of its own, averaged uniformly."""

    name, averaging = "wide", AveragingTraits("uniform")

    @override
    def steps(self) -> Mapping[str, Step]:
        return {"train": Step((Payload("averaged_gradients", "more", ("twice",)),))}

    @override
    def dimensions(self, signature: ModelSignature, settings: Any) -> Mapping[str, int]:
        return {**super().dimensions(signature, settings), "twice": 2 * signature.feature}


def test_shapes_and_weights_of_the_method_before_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**registry._entry_points(), "wide": EntryPoint("wide", f"{__name__}:WideMethod", registry.GROUP)}
    monkeypatch.setattr(registry, "_entry_points", lambda: found)
    config = {"after": {"name": "wide"}}
    method = bound_method("ccvr", config=config)
    contract = JobPlan(method).contract("train", ModelSignature((), classes=3, feature=5), {})
    assert [block.shape for block in contract.blocks] == [(10,)]
    (fault,) = method.check()
    assert fault[0] == "spec.aggregation.weights"
    assert bound_method("ccvr", config=config, aggregation={"weights": "uniform"}).check() == []
