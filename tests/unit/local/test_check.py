"""What `fedsilo check` says: all faults of all silos' data at once, and what else is worth knowing of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedsilo.cli.main import main
from fedsilo.local.check import check
from fedsilo.readiness.finding import CODES, ReadinessFinding
from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal

GOLDEN = Path(__file__).with_name("golden") / "check.txt"
CLASSES = ["airplane", "bird", "cat"]
SILOS = ("north", "south", "west", "east")
EXAMPLE_PRIVACY = {"epsilon": 8.0, "delta": 1e-5, "unit": "example", "maxGradNorm": 1.0}


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "fedsilo.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def dataset(name: str, file: str) -> dict[str, Any]:
    return {"name": name, "loader": "npz", "config": {"path": file}}


def manifest(directory: Path, policy: dict[str, Any] | None = None, **data: Any) -> Path:
    """A job of four silos and a test set, whose files lie in the directory."""
    described = {"dataset": "animals", "classes": CLASSES, "inputShape": [3], "validationFraction": 0.25}
    job = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [5]}},
        "data": described | data,
        "training": {"rounds": 1},
        "silos": {"refs": [{"name": name} for name in SILOS]},
        "evaluation": {"testDataset": "test"},
        "aggregator": {"datasets": [dataset("test", "test.npz")]},
    }
    silos = [
        document("Silo", name, {"datasets": [dataset("animals", f"{name}.npz")], "policy": policy or {}})
        for name in SILOS
    ]
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump_all([*silos, document("FederatedJob", "animals", job)]))
    return path


def write(directory: Path, name: str, classes: list[str] | None = None, **arrays: np.ndarray) -> None:
    """A file of 30 examples, ten of each class; `features` or `labels` replace them."""
    rng = np.random.default_rng(len(name))
    features = arrays.get("features", rng.normal(size=(30, 3)))
    labels = arrays.get("labels", np.arange(30) % 3)
    named = np.array(CLASSES if classes is None else classes)
    np.savez(directory / f"{name}.npz", images=features.astype(np.float32), labels=labels, classes=named)


def write_datasets(directory: Path) -> None:
    for name in (*SILOS, "test"):
        write(directory, name)


def only(findings: list[ReadinessFinding], code: str) -> ReadinessFinding:
    (found,) = (finding for finding in findings if finding.code == code)
    return found


def test_all_faults_of_all_silos_in_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    permitted = ["model", "class_counts", "feature_statistics"]
    manifest(tmp_path, {"payloadKinds": permitted}, preprocessing={"impute": "mean"})
    write_datasets(tmp_path)
    write(tmp_path, "south", ["plane", "bird", "cat"])
    features = np.random.default_rng(1).normal(size=(30, 3)) * [1, 1e5, 1]
    features[:, 2] = 0.5
    features[[1, 2], 0] = np.nan
    features[20:] = features[10]
    write(tmp_path, "west", features=features, labels=np.array([0] * 10 + [2] * 3 + [0] * 17))
    write(tmp_path, "east", features=np.full((30, 3), np.inf))
    write(tmp_path, "test", features=np.zeros((30, 4)))
    assert main(["check", "-f", "job.yaml"]) == 3
    assert capsys.readouterr().out == GOLDEN.read_text()
    assert main(["check", "-f", "job.yaml", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["code"] for finding in found} <= CODES.keys()
    assert found[0].keys() == {"code", "severity", "silo", "place", "value", "remedy"}


def test_data_that_fit_have_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(tmp_path)
    write_datasets(tmp_path)
    assert main(["check", "-f", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: ready: 4 silos, no finding\n"


def test_public_data_at_the_aggregator_are_looked_at_too(tmp_path: Path) -> None:
    """Their labels are not, where the method reads none."""
    path = manifest(tmp_path)
    write_datasets(tmp_path)
    documents = list(yaml.safe_load_all(path.read_text()))
    job = documents[-1]["spec"]
    job["method"], job["aggregation"] = {"name": "feddf"}, {"publicDataset": "crowd"}
    job["aggregator"]["datasets"].append(dataset("crowd", "crowd.npz"))
    path.write_text(yaml.safe_dump_all(documents))
    told = only(check(path), "Unreadable")
    assert (told.silo, told.place) == ("aggregator", "dataset 'crowd'")
    write(tmp_path, "crowd", ["fox", "hen", "eel"], labels=np.full(30, 2))
    assert check(path) == []


def test_every_item_of_data_at_the_aggregator_is_read(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    path = manifest(tmp_path)
    documents = list(yaml.safe_load_all(path.read_text()))
    job = documents[-1]["spec"]
    job["method"], job["aggregation"] = {"name": "feddf"}, {"publicDataset": "crowd"}
    job["aggregator"]["datasets"].append(dataset("crowd", "crowd.npz"))
    for one in job["aggregator"]["datasets"]:
        one["config"]["inMemory"] = False
    path.write_text(yaml.safe_dump_all(documents))
    for name in ("test", "crowd"):
        write(tmp_path, name, features=np.where(np.arange(30) == 7, np.inf, 1)[:, np.newaxis].repeat(3, 1))
    told = [(found.silo, found.place, found.value) for found in check(path) if found.severity == "error"]
    wrong = "item 7: features contain inf"
    assert told == [("aggregator", f"dataset '{name}'", wrong) for name in ("test", "crowd")]


def test_the_range_of_images_in_their_files_is_looked_at(tmp_path: Path) -> None:
    path = manifest(tmp_path, inputShape=[1, 2, 2])
    images = np.random.default_rng(1).random((30, 1, 2, 2))
    for name in (*SILOS, "test"):
        write(tmp_path, name, features=images + 300 if name == "west" else images)
    documents = list(yaml.safe_load_all(path.read_text()))
    for silo in documents[:-1]:
        silo["spec"]["datasets"][0]["config"]["inMemory"] = False
    path.write_text(yaml.safe_dump_all(documents))
    assert [found.silo for found in check(path) if found.code == "RangeUnusual"] == ["west"]


def test_every_faulty_column_of_a_table_is_a_finding(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    write_datasets(tmp_path)
    (tmp_path / "a.csv").write_text("one;two;three;y\n1,5;red;3;fox\n")
    documents = list(yaml.safe_load_all(path.read_text()))
    table = {"path": "a.csv", "target": "y", "delimiter": ";"}
    documents[0]["spec"]["datasets"] = [{"name": "animals", "loader": "csv", "config": table}]
    path.write_text(yaml.safe_dump_all(documents))
    found = [finding for finding in check(path) if finding.code == "Unreadable"]
    assert [(finding.place, finding.remedy.partition(",")[0]) for finding in found] == [
        ("dataset 'animals'", "set config.decimal to '"),
        ("dataset 'animals'", "list its values in config.categories"),
    ]
    assert ["'one'" in str(found[0].value), "'two'" in str(found[1].value)] == [True, True]


def test_counts_of_classes_are_told_as_the_policy_permits(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    write(tmp_path, "west", labels=np.array([0, 1, 1] + [2] * 27))
    told = only(check(manifest(tmp_path)), "ClassSmall")
    assert (told.silo, told.place, told.value) == ("west", "class airplane, bird", "1, 1 to train on")
    kept = only(check(manifest(tmp_path, {"payloadKinds": ["model"]})), "ClassSmall")
    assert kept.value == "too few to train on"


def test_a_class_that_no_silo_has(tmp_path: Path) -> None:
    for name in (*SILOS, "test"):
        write(tmp_path, name, labels=np.arange(30) % 2)
    found = [finding for finding in check(manifest(tmp_path)) if finding.silo == "all silos"]
    assert [(one.code, one.severity, one.place) for one in found] == [("ClassAbsent", "warning", "class cat")]


def test_features_of_which_a_silo_tells_nothing(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    features = np.random.default_rng(1).normal(size=(30, 3))
    features[4:, 1] = np.nan
    write(tmp_path, "north", features=features)
    path = manifest(tmp_path, preprocessing={"impute": "mean", "standardise": True})
    found = only(check(path), "FeatureEmpty")
    assert (found.silo, found.place, found.severity) == ("north", "feature 1", "warning")
    assert "the minimum, which is 5" in found.remedy


def test_splits_that_are_too_small(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    write(tmp_path, "east", features=np.ones((1, 3)), labels=np.array([1]))
    path = manifest(tmp_path)
    assert only(check(path), "NoTrainingExamples").severity == "error"
    text = path.read_text().replace("testDataset: test", "every: 1")
    path.write_text(text)
    assert only(check(path), "NoValidationExamples").silo == "east"


def test_a_silo_too_small_for_what_its_policy_asks_of_an_update(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    path = manifest(tmp_path, {"minSamplesPerUpdate": 24})
    told = [finding for finding in check(path) if finding.code == "UpdateTooSmall"]
    assert [(one.silo, one.severity, one.value) for one in told] == [(name, "error", "21") for name in SILOS]
    assert main(["check", "-f", str(path)]) == 3
    assert check(manifest(tmp_path, {"minSamplesPerUpdate": 21})) == []


def test_nothing_is_asked_of_examples_that_train_no_model(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    path = manifest(tmp_path, {"minSamplesPerUpdate": 24, "payloadKinds": ["feature_statistics"]})
    text = path.read_text().replace("name: fedavg", "name: statistics")
    path.write_text(text)
    assert [one for one in check(path) if one.code == "UpdateTooSmall"] == []


def test_a_silo_too_small_for_a_private_batch(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    path = manifest(tmp_path)
    documents = list(yaml.safe_load_all(path.read_text()))
    documents[-1]["spec"]["privacy"] = {"differentialPrivacy": EXAMPLE_PRIVACY}
    path.write_text(yaml.safe_dump_all(documents))
    told = [finding for finding in check(path) if finding.code == "PrivacyUnreachable"]
    assert [(one.silo, one.place) for one in told] == [(name, "training") for name in SILOS]
    assert told[0].value.startswith("examples: 21 are fewer than a batch of 32")


@pytest.mark.parametrize(("quorum", "severity", "code"), [(4, "error", 3), (3, "warning", 0)])
def test_a_policy_that_refuses_the_job_is_a_finding(
    tmp_path: Path, quorum: int, severity: str, code: int
) -> None:
    write_datasets(tmp_path)
    path = manifest(tmp_path)
    documents = list(yaml.safe_load_all(path.read_text()))
    documents[0]["spec"]["policy"] = {"maxRounds": 1}
    documents[-1]["spec"] |= {"training": {"rounds": 2}, "participation": {"minSilos": quorum}}
    path.write_text(yaml.safe_dump_all(documents))
    told = only(check(path), "PolicyRefuses")
    assert (told.silo, told.severity, told.place) == ("north", severity, "policy.maxRounds")
    assert told.remedy.startswith("make spec.training.rounds 1 or less")
    assert main(["check", "-f", str(path)]) == code


def test_images_of_an_unusual_range(tmp_path: Path) -> None:
    for name in (*SILOS, "test"):
        write(tmp_path, name, features=np.random.default_rng(0).random((30, 1, 2, 2)) * 4095)
    found = [one for one in check(manifest(tmp_path, inputShape=[1, 2, 2])) if one.code == "RangeUnusual"]
    assert [one.silo for one in found] == list(SILOS)


@pytest.mark.thorough
@runs("docs/data.md", "fedsilo check -f examples/quickstart.yaml")
def test_the_quickstart_is_ready(terminal: Terminal) -> None:
    (command,) = terminal.commands
    said = terminal.type(command)
    assert said.startswith("examples/quickstart.yaml: ready: 4 silos, ")
    assert "error" not in said
    page = (ROOT / "docs" / "data.md").read_text()
    assert [code for code in CODES if f"| `{code}` |" not in page] == []
