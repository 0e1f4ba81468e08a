"""ScaRS against the released code and the two methods that it is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import reference_numbers
from tests.federate import federate, job_spec, model_of, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    assert_close,
    run_recorded_job,
)


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_the_released_form_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    fixture = "map_scaffoldrs_mask"
    npz = reference_numbers.load(fixture)
    config = {
        "variant": "released-mask",
        "alpha": float(npz["arg/alpha"]),
        "serverLearningRate": float(npz["arg/glo_lr"]),
    }
    engine, silos = run_recorded_job(tmp_path, "scars", fixture, rounds, config, aggregation={})
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/g/"))
    assert_close(engine.state.tree("control"), fixture_tree(npz, f"round{rounds}/c/"))
    for k, silo in enumerate(silos):
        assert_close(silo.private_state.tree("control"), fixture_tree(npz, f"round{rounds}/ci/{k}/"))


def trained_vector(directory: Path, method: str, classes: dict[str, list[int]], **config: Any) -> np.ndarray:
    directory.mkdir()
    spec = job_spec(method, list(classes), 2, method={"config": config})
    engine = federate(directory, spec, runners(spec, skewed_silos(directory, classes), directory))
    return np.concatenate([array.ravel() for array in model_of(engine).values()])


def test_without_restriction_it_is_scaffold(tmp_path: Path) -> None:
    classes = {"a": [0, 1], "b": [2, 3]}
    scaffold = trained_vector(tmp_path / "scaffold", "scaffold", classes)
    np.testing.assert_array_equal(trained_vector(tmp_path / "scars", "scars", classes, alpha=1), scaffold)
    assert (
        np.abs(trained_vector(tmp_path / "restricted", "scars", classes, alpha=0.5) - scaffold).max() > 1e-3
    )


def test_the_slip_of_the_released_code_restricts_every_class_of_a_silo_with_several(tmp_path: Path) -> None:
    several, one = {"a": [0, 1], "b": [2, 3]}, {"a": [0], "b": [1]}
    slip = trained_vector(tmp_path / "slip", "scars", several, variant="released", alpha=0.5)
    mask = trained_vector(tmp_path / "mask", "scars", several, variant="released-mask", alpha=0.5)
    assert np.abs(slip - mask).max() > 1e-3
    slip, mask = (
        trained_vector(tmp_path / variant, "scars", one, variant=variant)
        for variant in ("released", "released-mask")
    )
    np.testing.assert_array_equal(slip, mask)
