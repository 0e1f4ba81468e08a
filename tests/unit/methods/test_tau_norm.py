"""The method tau-norm divides class weights as the released code does, after any method that yields one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.faults import ManifestFaults
from fedsilo.methods import registry
from fedsilo.methods.state import State
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.unit.methods.harness import assert_close, server_context

CLASSES_OF = {"a": [0, 1], "b": [1, 2]}


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_the_model_it_yields_has_the_recorded_weights_and_no_bias(tau: float) -> None:
    npz = reference_numbers.load("longtail_losses")
    spec = job_spec("tau-norm", ["a"], method={"config": {"tau": tau}})
    trained = {"classifier.weight": npz["tau_w"], "classifier.bias": np.ones(4, np.float32)}
    job = server_context(spec, ModelSignature((), classes=4, feature=5))
    found = registry.bind(spec).server().model(job, State({"model": trained})).tree
    assert_close({"w": found["classifier.weight"]}, {"w": npz[f"tau/{tau}"]})
    assert found["classifier.weight"].dtype == np.float32
    assert not found["classifier.bias"].any()


@pytest.mark.parametrize("bias", [True, False])
def test_what_is_trained_and_sent_is_the_method_befores(tmp_path: Path, bias: bool) -> None:
    sections: dict[str, Any] = {"model": {"config": {"hidden": [5], "bias": bias}}}
    plain = job_spec("fedprox", list(CLASSES_OF), 2, method={"config": {"mu": 0.5}}, **sections)
    config = {"after": {"name": "fedprox", "config": {"mu": 0.5}}, "tau": 0.7}
    after = job_spec("tau-norm", list(CLASSES_OF), 2, method={"config": config}, **sections)
    silos = skewed_silos(tmp_path, CLASSES_OF)
    trained = model_of(federate(tmp_path / "plain", plain, runners(plain, silos, tmp_path)))
    engine = federate(tmp_path / "after", after, runners(after, silos, tmp_path))
    assert [line["phase"] for line in engine.history()] == ["train", "train"]
    found = model_of(engine)
    assert ("classifier.bias" in found) == bias
    for name, array in trained.items():
        if name.startswith("encoder."):
            np.testing.assert_array_equal(found[name], array)
            np.testing.assert_array_equal(engine.state.tree("model")[name], array)
    norms = np.linalg.norm(trained["classifier.weight"], axis=1) ** 0.3
    np.testing.assert_allclose(np.linalg.norm(found["classifier.weight"], axis=1), norms, rtol=1e-5)


def test_a_class_weight_of_zero_stays_zero() -> None:
    spec = job_spec("tau-norm", ["a"], method={"config": {"tau": 2}})
    job = server_context(spec, ModelSignature((), classes=2, feature=3))
    trained = {"classifier.weight": np.zeros((2, 3), np.float32)}
    found = registry.bind(spec).server().model(job, State({"model": trained})).tree
    np.testing.assert_array_equal(found["classifier.weight"], 0)


def test_calibrations_follow_one_another_but_none_follows_itself(tmp_path: Path) -> None:
    ccvr = {"name": "ccvr", "config": {"epochs": 1}}
    spec = job_spec("tau-norm", list(CLASSES_OF), 1, method={"config": {"after": ccvr}})
    assert registry.bind(spec).check() == []
    engine = federate(tmp_path, spec, runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path))
    assert [line["phase"] for line in engine.history()] == ["train", "calibration"]
    norms = np.linalg.norm(model_of(engine)["classifier.weight"], axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)
    within = {"name": "ccvr", "config": {"after": {"name": "tau-norm"}}}
    for name, config in (("tau-norm", within), ("ccvr", {"name": "tau-norm", "config": {"after": ccvr}})):
        with pytest.raises(ManifestFaults, match=rf"config\.after\.name: .* itself; name {name} once"):
            bound_method(name, config={"after": config})


@pytest.mark.parametrize("wrong", ["fedconcat", "statistics"])
def test_it_needs_one_model_before_it(wrong: str) -> None:
    with pytest.raises(ManifestFaults, match=rf'after\.name: "{wrong}": does not yield one model; '):
        bound_method("tau-norm", config={"after": {"name": wrong}})
