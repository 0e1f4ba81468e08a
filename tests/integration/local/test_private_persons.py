"""A run that protects persons: what it says, what leaves, and the silo that names nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedsilo.data.loaders import shipped_digits
from tests.integration.local.runs import run
from tests.paths import ROOT

pytestmark = pytest.mark.thorough

PERSONS = 60
SILOS = ("north", "east", "south", "west")


def manifest(folder: Path, nobody_in: str = "") -> Path:
    """The example of two rounds, in whose silos each of 60 persons wrote six digits or so."""
    images, labels = shipped_digits()
    place = folder / "data"
    place.mkdir()
    for number, silo in enumerate(SILOS):
        own = np.arange(number, len(labels) - 400, len(SILOS))
        arrays = {"images": (images[own] / 16).reshape(-1, 8, 8).astype(np.float32), "labels": labels[own]}
        np.savez(place / f"{silo}.npz", **arrays, writers=np.arange(len(own)) % PERSONS)  # type: ignore[arg-type]
    documents: list[Any] = list(yaml.safe_load_all((ROOT / "examples" / "private.yaml").read_text()))
    for document in documents:
        if document["kind"] == "Silo":
            name = document["metadata"]["name"]
            config = {"path": str(place / f"{name}.npz")} | (
                {} if name == nobody_in else {"person": "writers"}
            )
            document["spec"]["datasets"] = [{"name": "digits", "loader": "npz", "config": config}]
            document["spec"]["policy"]["privacyBudget"][0]["unit"] = "person"
        if document["kind"] == "FederatedJob":
            document["spec"]["training"] |= {"rounds": 2, "batchSize": 16}
            document["spec"]["privacy"]["differentialPrivacy"]["unit"] = "person"
            document["spec"]["participation"]["minSilos"] = 4
    written = place / "job.yaml"
    written.write_text(yaml.safe_dump_all(documents))
    return written


def test_persons_are_what_is_sampled_and_spent_and_nobody_counts_them(tmp_path: Path) -> None:
    ended = run(manifest(tmp_path), tmp_path / "run")
    assert ended.code == 0, ended.err
    card = (ended.workdir / "aggregator" / "MODEL_CARD.md").read_text()
    assert "epsilon 3 at delta 0.001 for each person, over the whole job" in card
    described = json.loads((ended.workdir / "aggregator" / "model.json").read_text())
    assert described["differentialPrivacy"]["unit"] == "person"
    for silo in SILOS:
        folder = ended.workdir / "silos" / silo
        budget, *charges = map(
            json.loads, (folder / "guard" / "ledgers" / "digits.jsonl").read_text().splitlines()
        )
        assert budget["unit"] == "person"
        (mechanism,) = charges[0]["mechanisms"]
        persons = round(16 / mechanism["sampling"])
        # A tenth of the persons, and none in part, is set aside.
        assert 40 <= persons <= PERSONS
        assert mechanism["times"] == 2 * -(-persons // 16)
        audit = map(json.loads, (folder / "audit" / "log.jsonl").read_text().splitlines())
        assert {line["samples"] for line in audit if line["event"] == "departure"} == {0}
    assert ended.document["samples"] is None, "nobody is told how many persons there are"
    assert all(line["summed"]["samples"] == 0 for line in ended.history)


def test_a_silo_that_names_nobody_refuses_the_job(tmp_path: Path) -> None:
    ended = run(manifest(tmp_path, nobody_in="south"), tmp_path / "run")
    assert ended.code != 0
    assert "the dataset cannot be read, or is not what the job says" in ended.document["message"]
    logs = "".join(path.read_text() for path in (tmp_path / "run").rglob("*.log"))
    assert "dataset 'digits': does not say whose each example is" in logs, "where the data are"
    assert "set its config.person" in logs
