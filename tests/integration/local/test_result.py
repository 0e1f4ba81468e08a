"""What a run prints and leaves when all goes well."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors.numpy import load_file

from tests.integration.local.runs import PATIENCE_SECONDS, EndedRun, run, running_processes
from tests.paths import ROOT

FIELDS = [
    "phase",
    "reason",
    "job",
    "method",
    "rounds",
    "samples",
    "metrics",
    "score",
    "silos",
    "model",
    "seconds",
]


def test_the_last_line_of_json_has_the_promised_fields(undisturbed_run: EndedRun) -> None:
    assert (undisturbed_run.code, undisturbed_run.err.count("Traceback")) == (0, 0)
    assert len(undisturbed_run.out.splitlines()) == 1
    document = undisturbed_run.document
    assert list(document) == FIELDS
    assert document["phase"] == document["reason"] == "Succeeded"
    assert (document["job"], document["method"], document["rounds"]) == ("federation/digits", "fedavg", 3)
    assert set(document["metrics"]) == {"accuracy", "loss"}
    assert 0.8 < document["metrics"]["accuracy"] <= 1
    assert [list(silo) for silo in document["silos"]] == [["name", "state", "samples", "lastRound"]] * 2
    assert [silo["name"] for silo in document["silos"]] == ["north", "east"]
    assert {(silo["state"], silo["lastRound"]) for silo in document["silos"]} == {("Finished", 3)}
    assert 0 < document["seconds"] < PATIENCE_SECONDS


def test_the_model_is_where_it_is_reported_to_be(undisturbed_run: EndedRun) -> None:
    model = undisturbed_run.document["model"]
    path = undisturbed_run.workdir / "model.safetensors"
    assert model == {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    tensors = load_file(path)
    assert {tensor.dtype.name for tensor in tensors.values()} == {"float32"}
    assert sum(tensor.size for tensor in tensors.values()) == 64 * 16 + 16 + 16 * 10 + 10


def test_the_description_names_model_data_method_and_every_signed_update(undisturbed_run: EndedRun) -> None:
    description = json.loads((undisturbed_run.workdir / "model.json").read_text())
    assert description["model"] == {"name": "mlp", "config": {"hidden": [16]}}
    assert (description["data"]["classes"], description["method"]["name"]) == (10, "fedavg")
    assert description["job"]["name"] == "digits"
    assert description["sha256"] == undisturbed_run.document["model"]["sha256"]
    assert [(line["round"], len(line["digests"])) for line in description["updates"]] == [
        (1, 2),
        (2, 2),
        (3, 2),
    ]
    for line in description["updates"]:
        assert all(len(digest) == 64 for digest in line["digests"].values())


def test_history_has_one_line_for_each_round(undisturbed_run: EndedRun) -> None:
    lines = [
        json.loads(line) for line in (undisturbed_run.workdir / "history.jsonl").read_text().splitlines()
    ]
    assert lines == undisturbed_run.history
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["samples"] == {"silo-north/north": 647, "silo-east/east": 646} or sum(
            line["samples"].values()
        ) == sum(silo["samples"] for silo in undisturbed_run.document["silos"])
        assert (line["failed"], line["missing"]) == ({}, [])
        assert set(line["metrics"]) == {"accuracy", "loss"}
    assert lines[-1]["metrics"] == undisturbed_run.document["metrics"]


def test_each_silo_has_its_audit_log_of_what_left(undisturbed_run: EndedRun) -> None:
    updates = [digest for line in undisturbed_run.history for digest in line["updates"].values()]
    departures = []
    for silo in ("north", "east"):
        log = undisturbed_run.workdir / "silos" / silo / "audit" / "log.jsonl"
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        departures += [entry for entry in entries if entry.get("event") == "departure"]
    assert sorted(entry["digest"] for entry in departures) == sorted(updates)


def test_nothing_is_left_running(undisturbed_run: EndedRun) -> None:
    assert running_processes(undisturbed_run.workdir) == {}


def test_keys_are_readable_by_their_owner_only(undisturbed_run: EndedRun) -> None:
    keys = [*undisturbed_run.workdir.glob("silos/*/guard"), undisturbed_run.workdir / "aggregator-secrets"]
    assert len(keys) == 3
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o700}


@pytest.mark.thorough
def test_the_quickstart_trains_a_model_far_better_than_any_silo_alone(tmp_path: Path) -> None:
    manifest = ROOT / "examples" / "quickstart.yaml"
    ended = run(manifest, tmp_path / "run", "--alone")
    document = ended.document
    assert ended.code == 0
    assert (document["phase"], document["rounds"]) == ("Succeeded", len(ended.history))
    best = max(silo["accuracy"] for silo in document["alone"])
    assert best < 0.6 < 0.85 < document["metrics"]["accuracy"]
    assert document["pooled"]["accuracy"] > 0.85
    table = (tmp_path / "run" / "alone.csv").read_text().splitlines()
    assert [len(table), table[0]] == [1 + 4 + 2, "trained on,samples,accuracy,loss"]
    assert [len([n for n in silo["classes"] if n]) for silo in document["alone"]] == [4, 4, 4, 4]
    assert 0 < document["seconds"] < PATIENCE_SECONDS
    assert running_processes(tmp_path) == {}


@pytest.mark.thorough
def test_without_a_test_set_the_silos_score_the_model(steady_manifest: Path, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all(steady_manifest.read_text()))
    spec = documents[-1]["spec"]
    spec |= {"evaluation": {"every": 2}, "participation": {"fraction": 0.5}}
    spec["training"]["rounds"] = 3
    manifest = tmp_path / "digits.yaml"
    manifest.write_text(yaml.safe_dump_all(documents))
    ended = run(manifest, tmp_path / "run")
    assert ended.code == 0
    assert ["metrics" in line for line in ended.history] == [False, True, True]
    assert 0.7 < ended.document["metrics"]["accuracy"] <= 1
    # Half of two silos trains, both evaluate.
    assert [len(line["samples"]) for line in ended.history] == [1, 1, 1]
    assert [len(line["updates"]) for line in ended.history] == [1, 3, 3]


def test_a_finished_run_can_be_resumed_and_says_the_same_again(
    undisturbed_run: EndedRun, steady_manifest: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(undisturbed_run.workdir, copy)
    ended = run(steady_manifest, copy, "--resume")
    assert ended.code == 0
    assert ended.document["model"]["sha256"] == undisturbed_run.document["model"]["sha256"]
    assert ended.document["rounds"] == 3
    assert ended.document["silos"] == undisturbed_run.document["silos"]
