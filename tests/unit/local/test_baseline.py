"""What each silo reaches alone: the same scores as the federated model has, of every learning task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.local.baseline import scores
from fedsilo.local.display import show_comparison, show_result
from fedsilo.local.library import simulate
from fedsilo.local.progress import RunOutcome
from fedsilo.validation import load_manifest
from tests.paths import ROOT
from tests.unit.learning.test_devices import restored_settings

__all__ = ["restored_settings"]


def example(task: str, *, training: Mapping[str, Any] | None = None, **evaluation: Any) -> JobManifest:
    """An example job, of one round."""
    found = load_manifest(ROOT / "examples" / "tasks" / f"{task}.yaml")
    document = found.job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["spec"]["training"] |= {"rounds": 1, **(training or {})}
    document["spec"]["evaluation"] = document["spec"].get("evaluation", {}) | evaluation
    return JobManifest(found.file, FederatedJob.model_validate(document), found.silos)


def outcome(metrics: dict[str, float], **fields: Any) -> dict[str, Any]:
    """What a run of two silos ended with."""
    silos = [{"name": name, "samples": 120} for name in ("north", "south")]
    common = {
        "phase": "Succeeded",
        "job": "j",
        "method": "fedavg",
        "rounds": 1,
        "samples": 240,
        "seconds": 2.0,
    }
    return {**common, "model": {"path": "m", "sha256": "s"}, "silos": silos, "metrics": metrics, **fields}


@pytest.mark.parametrize(
    ("task", "metrics", "names"),
    [
        ("regression", ["rmse", "r2"], {"mae", "loss", "rmse", "r2"}),
        ("multilabel", ["f1"], {"accuracy", "loss", "f1"}),
    ],
)
def test_every_silo_alone_has_the_scores_of_the_job(task: str, metrics: list[str], names: set[str]) -> None:
    manifest = example(task, metrics=metrics)
    found = scores(manifest, ROOT / "examples" / "tasks")
    assert [entry["name"] for entry in found["alone"]] == [silo.metadata.name for silo in manifest.silos]
    assert all(entry.keys() == {"name", "samples", *names} for entry in found["alone"]), (
        "no counts of classes"
    )
    assert found["pooled"].keys() == {"samples", *names}
    assert found["pooled"]["samples"] == sum(entry["samples"] for entry in found["alone"])


def test_a_step_a_round_on_all_examples_is_pooled_training(tmp_path: Path, restored_settings: None) -> None:
    training = {"rounds": 3, "localEpochs": 1, "batchSize": 500}
    manifest = example(
        "regression", training={**training, "optimizer": {"learningRate": 0.01, "momentum": 0}}
    )
    federated = simulate(manifest, tmp_path / "run", display=False).metrics
    found = scores(manifest, ROOT / "examples" / "tasks")
    assert found["pooled"].pop("samples") > 0
    assert found["pooled"] == pytest.approx(federated, rel=1e-5)
    assert all(abs(silo["loss"] - federated["loss"]) > 1e-3 for silo in found["alone"])


def test_where_silos_score_a_baseline_has_the_names_that_the_federation_reports() -> None:
    manifest = example("multilabel", metrics=["auroc"], testDataset=None)
    pooled = scores(manifest, ROOT / "examples" / "tasks")["pooled"]
    assert pooled.keys() == {"samples", "accuracy", "loss", "auroc", "auroc_mean", "auroc_spread"}
    assert 0 < pooled["auroc_spread"] < pooled["auroc_mean"] <= 1


def test_the_table_compares_by_the_main_score_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    data = example("regression").job.spec.data
    alone = [{"name": "north", "mae": 31.25, "loss": 9.0}, {"name": "south", "mae": 40.0, "loss": 9.5}]
    alone = [{**silo, "samples": 120} for silo in alone]
    baseline = {"alone": alone, "pooled": {"mae": 11.75, "loss": 1.5, "samples": 250}}
    show_result(outcome({"loss": 2.0, "mae": 12.5}), baseline, data)
    shown = capsys.readouterr().out
    assert "mae (smaller is better)" in shown and "accuracy" not in shown
    for cells in (
        ["north alone", "120", "31.25"],
        ["south alone", "120", "40"],
        ["all, pooled", "250", "11.75"],
        ["all, federated", "240", "12.5"],
    ):
        assert any(all(cell in line for cell in cells) for line in shown.splitlines()), cells


def test_jobs_of_different_tasks_are_compared_each_by_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    found = [outcome({"mae": 12.5}), outcome({"accuracy": 0.5, "dice": 0.25}, score="dice=0.25")]
    show_comparison([RunOutcome(document, 0, 1.0, ()) for document in found])
    shown = capsys.readouterr().out
    assert "score" in shown and "mae 12.5" in shown and "dice 25.0%" in shown
    show_comparison([RunOutcome(found[1], 0, 1.0, ())])
    assert "score" not in capsys.readouterr().out
