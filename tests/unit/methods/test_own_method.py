"""The guide's method with a silo half of its own does what its page says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedsilo.api.job import MethodSpec
from fedsilo.api.loading import JobManifest
from fedsilo.methods import registry
from tests.installed import install
from tests.paths import ROOT
from tests.unit.methods.forms import form_manifest
from tests.unit.methods.test_secure_sums import LABELS, both_models, changed_manifest, simulated_model


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example's package was installed."""
    return install(ROOT / "examples" / "own-method", tmp_path_factory.mktemp("packages"))


@pytest.fixture
def registered_package(installed_package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets this process find the package, for the length of a test."""
    monkeypatch.syspath_prepend(installed_package)
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


def anchored_manifest(directory: Path, **config: float) -> JobManifest:
    """A job of three rounds, in silos that lack classes."""
    return changed_manifest(
        form_manifest(directory, "fedavg", LABELS), method=MethodSpec(name="anchored", config=config)
    )


@pytest.mark.usefixtures("registered_package")
def test_a_plain_job_and_sums_end_with_the_same_model(tmp_path: Path) -> None:
    summed, plain = both_models(anchored_manifest(tmp_path), tmp_path)
    for name in plain:
        np.testing.assert_allclose(summed[name], plain[name], atol=1e-5)


@pytest.mark.usefixtures("registered_package")
@pytest.mark.parametrize("other", [{"weight": 0.0}, {"memory": 0.0}])
def test_what_silos_are_told_and_what_they_keep_counts(tmp_path: Path, other: dict[str, float]) -> None:
    model = simulated_model(anchored_manifest(tmp_path), tmp_path, "one")
    another = simulated_model(anchored_manifest(tmp_path, **other), tmp_path, "other")
    assert any((model[name] != another[name]).any() for name in model)
