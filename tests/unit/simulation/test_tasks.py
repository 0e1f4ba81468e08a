"""Every learning task, end to end on its example: silos train, the aggregator scores, and the model opens again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedsilo.api.loading import JobManifest
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.learning.saved import load_model
from fedsilo.local.evaluation import evaluate
from fedsilo.simulation.simulate import simulate
from fedsilo.validation import load_manifest
from tests.federate import drive, local_silos, open_engine, runners
from tests.paths import ROOT
from tests.tiers import mark_thorough

EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "tasks").glob("*.yaml"))

LEARNED_METRICS = {
    "regression": ("mae", 0.0, 0.55),
    "multilabel": ("accuracy", 0.85, 1.0),
    "segmentation": ("accuracy", 0.9, 1.0),
    "next-token": ("accuracy", 0.2, 1.0),
    "passages": ("accuracy", 0.4, 1.0),
}
"""Example -> its chief metric, and between which values it is after the last round. A model that has learned nothing
is outside: the mean progression is wrong by 0.65, half of all labels, two thirds of pixels, one byte in six and one
passage in three are told rightly by always saying the same."""


def manifest(name: str) -> JobManifest:
    return load_manifest(ROOT / "examples" / "tasks" / f"{name}.yaml")


@pytest.mark.parametrize("name", mark_thorough(EXAMPLES, {"regression", "multilabel"}))
def test_an_example_learns_and_its_result_opens(name: str, tmp_path: Path) -> None:
    job = manifest(name)
    result = simulate(job, tmp_path, tmp_path / "run").result
    assert result is not None
    metric, least, most = LEARNED_METRICS[name]
    assert list(result.metrics) == [metric, "loss"]
    assert least <= result.metrics[metric] <= most
    assert not load_model(result.path).training
    (scored,) = evaluate(result.path, job).values()
    assert scored is not None
    assert scored.metrics == pytest.approx(result.metrics, abs=1e-6)


@pytest.mark.parametrize("name", mark_thorough(["segmentation", "next-token"], {"segmentation"}))
def test_signed_updates_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    job = manifest(name)
    document = job.job.model_dump(by_alias=True)
    document["spec"]["training"]["rounds"] = 1
    document["spec"]["evaluation"] = {}  # silos score the model
    short = JobManifest(job.file, type(job.job).model_validate(document), job.silos)
    spec = short.job.spec
    assert GlobalEvaluation.of(spec, tmp_path) is None
    engine = open_engine(tmp_path / "signed" / "aggregator", spec)
    drive(engine, local_silos(tmp_path / "signed", runners(spec, short.silos, tmp_path)))
    simulation = simulate(short, tmp_path, tmp_path / "simulated")
    assert engine.result is not None and simulation.result is not None
    assert simulation.result.sha256 == engine.result.sha256
    for one, other in zip(simulation.history(), engine.history(), strict=True):
        assert one["metrics"] == other["metrics"]
        assert set(one["metrics"]) == {"accuracy", "loss"}


def test_a_causal_transformer_does_not_see_what_follows(tmp_path: Path) -> None:
    job = manifest("next-token")
    from fedsilo.learning.models import build_module

    spec = job.job.spec
    model = build_module(spec.model, spec.data, 0, spec.task).eval()
    tokens = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 20:] = 0
    with torch.no_grad():
        one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :20], other[:, :20])
    assert not torch.equal(one[:, 20:], other[:, 20:])
