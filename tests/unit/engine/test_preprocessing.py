"""Federated standardisation and imputation: computed before round 1, applied wherever the model is used, and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from fedsilo.api.data import PreprocessingSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.errors import DataInvalid
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.preprocessing_numbers import from_document
from fedsilo.learning.saved import load_model
from fedsilo.methods import registry
from fedsilo.methods.interface import PERSONAL_TREE, PREPROCESSING
from fedsilo.silo.personal import PersonalModel
from fedsilo.transforms.preprocessing.numbers import numbers_of
from tests.federate import drive, federate, job_spec, local_silos, open_engine, runners, silo_holding
from tests.unit.verification.chains import replay_directory

NAMES = ("north", "south", "west")
BOTH_STEPS = {"standardise": True, "impute": "mean"}
TEST = {"name": "test", "loader": "npz", "config": {"path": "test.npz"}}


def raw_parts(missing: bool = True) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features far from zero and of different size, one of them constant; each silo has other values."""
    rng = np.random.default_rng(5)
    found = {}
    for place, name in enumerate((*NAMES, "test")):
        labels = rng.integers(0, 4, 12 + 8 * place)
        features = rng.normal(size=(len(labels), 6)) + np.eye(6)[labels] + place
        features = features * [1, 1e-3, 1e4, 1, 1, 1] + [0, 10, -1e6, 0, 5, 0]
        features[:, 3] = 0.1
        if missing:
            features[rng.random(features.shape) < 0.2] = np.nan
        found[name] = features.astype(np.float32), labels
    return found


def job(
    directory: Path, parts: dict[str, tuple[np.ndarray, np.ndarray]], method: str = "fedavg", **sections: Any
) -> tuple[FederatedJobSpec, dict[str, Any]]:
    """The job of these silos, and what runs in each."""
    directory.mkdir(exist_ok=True)
    silos = {name: silo_holding(directory, name, *part) for name, part in parts.items()}
    spec = job_spec(method, NAMES, rounds=2, aggregator={"datasets": [TEST], "keepUpdates": True}, **sections)
    return spec, dict(runners(spec, [silos[name] for name in NAMES], directory))


def run(directory: Path, parts: dict[str, tuple[np.ndarray, np.ndarray]], **sections: Any) -> RoundEngine:
    spec, answering = job(directory, parts, **sections)
    evaluation = GlobalEvaluation(spec, directory) if spec.evaluation.test_dataset else None
    return federate(directory, spec, answering, evaluation=evaluation)


def numbers(engine: RoundEngine) -> dict[str, np.ndarray]:
    assert engine.result is not None
    description = json.loads(engine.result.path.with_name("model.json").read_text())
    return from_document(description["preprocessing"], 6)


def test_it_equals_a_scaler_of_the_pooled_table_to_1e_9(tmp_path: Path) -> None:
    parts = raw_parts()
    found = numbers(run(tmp_path, parts, data={"preprocessing": BOTH_STEPS}))
    pooled = np.concatenate([parts[name][0] for name in NAMES]).astype(np.float64)
    scaler = StandardScaler().fit(pooled)
    expected = np.where(np.isnan(pooled), 0.0, scaler.transform(pooled))
    ours = Preprocessing(found).double()(torch.tensor(pooled))
    np.testing.assert_allclose(ours.numpy(), expected, rtol=0, atol=1e-9)
    assert (ours[:, 3] == 0).all(), "a constant feature is centred exactly"


@pytest.mark.parametrize(
    "evaluation", [{"testDataset": "test", "every": 1}, {"testDataset": None, "every": 1}]
)
def test_training_and_scores_are_those_of_data_that_were_preprocessed_before(
    tmp_path: Path, evaluation: dict[str, Any]
) -> None:
    """Silos and aggregator feed raw values; the same model comes from standardised ones, byte for byte."""
    parts, held_out = raw_parts(), {"validationFraction": 0.2}
    raw = run(tmp_path / "raw", parts, data={"preprocessing": BOTH_STEPS, **held_out}, evaluation=evaluation)
    layer = Preprocessing(numbers(raw))
    before = {name: (layer(torch.tensor(x)).numpy(), y) for name, (x, y) in parts.items()}
    other = run(tmp_path / "before", before, data=held_out, evaluation=evaluation)
    assert raw.result is not None and other.result is not None
    assert raw.result.path.read_bytes() == other.result.path.read_bytes()
    for one, same in zip(raw.history(), other.history(), strict=True):
        assert one["metrics"] == same["metrics"]
        assert (one["phase"], one["training"], one["samples"]) == ("train", same["training"], same["samples"])
    assert [
        len(line["updates"]) - len(same["updates"])
        for line, same in zip(raw.history(), other.history(), strict=True)
    ] == [3, 0]
    score = evaluate(load_model(raw.result.path), Examples.from_arrays(*parts["test"], "cpu"))
    again = evaluate(load_model(other.result.path), Examples.from_arrays(*before["test"], "cpu"))
    assert (score.accuracy, score.loss) == (again.accuracy, again.loss)


def test_the_chain_of_a_preprocessed_job_folds_again(tmp_path: Path) -> None:
    run(tmp_path, raw_parts(), data={"preprocessing": BOTH_STEPS})
    replay_directory(tmp_path / "aggregator")


def test_a_restarted_aggregator_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    parts = raw_parts()
    whole = run(tmp_path / "whole", parts, data={"preprocessing": BOTH_STEPS})
    spec, answering = job(tmp_path / "killed", parts, data={"preprocessing": BOTH_STEPS})
    silos = local_silos(tmp_path / "killed", answering)
    engine = open_engine(tmp_path / "killed" / "aggregator", spec)
    for _ in range(2):  # preprocessing, and the first training
        for silo in silos:
            silo.answer(engine)
        engine.settle()
    engine = open_engine(tmp_path / "killed" / "aggregator", spec)
    drive(engine, silos)
    assert engine.result is not None and whole.result is not None
    assert engine.result.path.read_bytes() == whole.result.path.read_bytes()
    assert numbers(engine)["mean"].tolist() == numbers(whole)["mean"].tolist()


def test_a_silos_own_model_takes_raw_values_too(tmp_path: Path) -> None:
    spec, answering = job(tmp_path, raw_parts(), "fedphp", data={"preprocessing": BOTH_STEPS})
    silos = local_silos(tmp_path, answering)
    engine = open_engine(tmp_path / "aggregator", spec)
    drive(engine, silos)
    assert engine.failure is None
    private = silos[0].private_state
    assert {PERSONAL_TREE, PREPROCESSING} <= private.trees.keys()
    PersonalModel(tmp_path / "own", registry.bind(spec), silos[0].reference).publish(private)
    model = load_model(tmp_path / "own" / "personal.safetensors")
    assert isinstance(model, Model)
    assert model.preprocessing is not None
    assert model.preprocessing.mean.tolist() == numbers(engine)["mean"].tolist()


def test_a_channel_of_images_is_standardised_by_its_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts = {
        name: (rng.integers(0, 200 - 50 * place, (10, 3, 8, 8)).astype(np.uint8), rng.integers(0, 4, 10))
        for place, name in enumerate((*NAMES, "test"))
    }
    sections = {
        "model": {"name": "lenet", "config": {"padding": 2}},
        "data": {"inputShape": [3, 8, 8], "preprocessing": {"standardise": True}},
    }
    engine = run(tmp_path, parts, **sections)
    assert engine.result is not None
    model = load_model(engine.result.path)
    assert isinstance(model, Model)
    found = model.preprocessing
    pooled = np.concatenate([parts[name][0] for name in NAMES]) / 255
    assert found is not None
    np.testing.assert_allclose(found.mean.numpy(), pooled.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(found.scale.numpy(), pooled.std(axis=(0, 2, 3)), rtol=1e-6)


def test_a_feature_that_no_silo_has_ends_the_job(tmp_path: Path) -> None:
    parts = raw_parts()
    for name in NAMES:
        parts[name][0][:, 4] = np.nan
    with pytest.raises(DataInvalid, match=r"feature 4: no silo tells of it.* leave it out of the data"):
        run(tmp_path, parts, data={"preprocessing": BOTH_STEPS})


def test_missing_values_are_refused_unless_they_are_imputed(tmp_path: Path) -> None:
    with pytest.raises(
        DataInvalid, match=r"item 0: features contain nan; .* or set spec.data.preprocessing.impute"
    ):
        job(tmp_path, raw_parts(), data={"preprocessing": {"standardise": True}})
    parts = raw_parts()
    parts["south"][0][2, 1] = np.inf
    with pytest.raises(DataInvalid, match=r"item 2: features contain inf; remove or mend the item$"):
        job(tmp_path, parts, data={"preprocessing": BOTH_STEPS})


def regression_parts() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Targets that are large beside their spread, and follow from features that are too."""
    rng = np.random.default_rng(7)
    found = {}
    for name in (*NAMES, "test"):
        spread = rng.normal(size=(60, 6))
        found[name] = (
            spread + np.array([1.7e9, 0, 0, 0, 0, 0]),
            1.8e9 + 3 * spread[:, :1] + 2 * spread[:, 1:2],
        )
    return found


REGRESSION: dict[str, Any] = {
    "task": {"name": "regression"},
    "training": {
        "rounds": 12,
        "device": "cpu",
        "batchSize": 10,
        "optimizer": {"name": "sgd", "learningRate": 0.1},
    },
    "model": {"name": "mlp", "config": {"hidden": [16]}},
    "data": {"classes": None, "preprocessing": {"standardise": True}},
}


def test_targets_far_from_zero_are_learned_and_predicted_in_their_own_units(tmp_path: Path) -> None:
    parts = regression_parts()
    engine = run(tmp_path, parts, **REGRESSION, evaluation={"testDataset": "test", "every": 1})
    assert engine.result is not None
    scored = engine.history()[-1]["metrics"]["mae"]
    assert scored < 1, "float32 has steps of 128 there, and targets a deviation of 3.6"
    description = json.loads(engine.result.path.with_name("model.json").read_text())["preprocessing"]
    pooled = np.concatenate([parts[name][1] for name in NAMES])
    np.testing.assert_allclose(description["targetMean"], pooled.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(description["targetScale"], pooled.std(axis=0), rtol=1e-9)
    with torch.no_grad():
        predicted = load_model(engine.result.path)(torch.tensor(parts["test"][0]))
    assert predicted.dtype == torch.float64
    assert np.abs(predicted.numpy() - parts["test"][1]).mean() == pytest.approx(scored)


def test_silos_score_targets_in_their_own_units(tmp_path: Path) -> None:
    held_out = {"data": REGRESSION["data"] | {"validationFraction": 0.2}}
    engine = run(tmp_path, regression_parts(), **REGRESSION | held_out, evaluation={"every": 1})
    assert 0.01 < engine.history()[-1]["metrics"]["mae"] < 1
    assert engine.history()[-1]["training"]["loss"] < 0.2, "the loss is of standardised targets"


def test_targets_of_which_no_silo_tells_are_refused() -> None:
    found, nothing = FeatureStatistics.of(np.ones((9, 1))), FeatureStatistics.none(1)
    with pytest.raises(DataInvalid, match="targets: no silo tells of them"):
        numbers_of(PreprocessingSpec(standardise=True), found, nothing)


@pytest.mark.parametrize("wrong", [{"targetMean": [1.0]}, {"targetMean": [1.0], "targetScale": [0.0]}])
def test_numbers_of_targets_are_whole_and_divide(wrong: dict[str, list[float]]) -> None:
    document = {"fill": [0.0], "mean": [0.0], "scale": [1.0]}
    assert from_document(document | {"targetMean": [1.0], "targetScale": [2.0]}, 1, 1)["targetScale"] == [2.0]
    with pytest.raises(DataInvalid, match="preprocessing"):
        from_document(document | wrong, 1, 1)
