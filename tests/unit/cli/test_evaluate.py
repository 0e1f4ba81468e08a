"""Scores of `fedsilo evaluate` are the model's, on the right examples; what does not fit is refused in words.

The model's classifier has no weights and the bias (0, 1, 0), so that it answers class 1 whatever it sees: accuracy
is the share of class 1 and the loss follows from the counts alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import e, log
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedsilo.cli.main import main

CLASSES, INPUTS = 3, 4
LOG_SUM = log(2 + e)

Evaluate = Callable[..., int]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model.safetensors` and `model.json` of a network that always answers class 1."""
    from fedsilo.api.data import DataSpec
    from fedsilo.api.job import ModelSpec
    from fedsilo.learning.models import build_model, to_tree
    from fedsilo.wire import write_tensors

    architecture = ModelSpec(name="mlp", config={"hidden": [2]})
    data = DataSpec(dataset="scans", classes=CLASSES, input_shape=(INPUTS,))
    tree = to_tree(build_model(architecture, data, seed=0))
    tree["classifier.weight"] = np.zeros_like(tree["classifier.weight"])
    tree["classifier.bias"] = np.array([0, 1, 0], np.float32)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    described = {
        "model": architecture.model_dump(by_alias=True, mode="json"),
        "data": data.model_dump(by_alias=True, mode="json"),
        "sha256": write_tensors(tree, path).digest,
    }
    path.with_name("model.json").write_text(json.dumps(described))
    return path


def labels_file(path: Path, labels: list[int]) -> None:
    np.savez(path, images=np.zeros((len(labels), INPUTS), np.float32), labels=np.array(labels))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data beside the manifest, which names them by relative paths."""
    labels_file(tmp_path / "north.npz", [0] * 4 + [1] * 12)
    labels_file(tmp_path / "south.npz", [0] * 4 + [2] * 4)
    labels_file(tmp_path / "test.npz", [1, 1, 1, 2, 0])
    return tmp_path


def manifest(
    folder: Path,
    test: bool = True,
    shape: tuple[int, ...] = (INPUTS,),
    classes: int = CLASSES,
    validation: float = 0.5,
    metrics: tuple[str, ...] = (),
) -> Path:
    def silo(name: str) -> dict[str, object]:
        dataset = {"name": "scans", "loader": "npz", "config": {"path": f"{name}.npz"}}
        return {
            "apiVersion": "fedsilo.io/v1alpha1",
            "kind": "Silo",
            "metadata": {"name": name, "namespace": f"silo-{name}"},
            "spec": {"datasets": [dataset]},
        }

    names = ("north", "south")
    spec: dict[str, object] = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [2]}},
        "data": {
            "dataset": "scans",
            "classes": classes,
            "inputShape": list(shape),
            "validationFraction": validation,
        },
        "training": {"rounds": 1, "device": "cpu"},
        "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in names]},
    }
    if test:
        held = {"name": "scans-test", "loader": "npz", "config": {"path": "test.npz"}}
        spec |= {"aggregator": {"datasets": [held]}, "evaluation": {"testDataset": "scans-test"}}
    if metrics:
        spec["evaluation"] = {"testDataset": "scans-test", "metrics": list(metrics)}
    job = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"name": "scans", "namespace": "federation"},
        "spec": spec,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all([*map(silo, names), job]))
    return path


def test_the_test_set_is_scored(model: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder))]) == 0
    loss = LOG_SUM - 3 / 5
    assert capsys.readouterr().out == (
        f"            samples  accuracy    loss\nscans-test        5     60.0%  {loss:.4f}\n"
    )


def test_the_metrics_of_the_job_are_columns_and_those_by_class_tables(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(folder, metrics=("balanced_accuracy", "recall", "precision", "confusion_matrix"))
    assert main(["evaluate", "--model", str(model), "-f", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["samples", "balanced_accuracy", "accuracy", "loss", "recall", "precision"]
    assert lines[1].split() == [
        "scans-test",
        "5",
        "33.3%",
        "60.0%",
        f"{LOG_SUM - 3 / 5:.4f}",
        "33.3%",
        "20.0%",
    ]
    assert [line.split() for line in lines[3:7]] == [
        ["class", "recall", "precision"],
        ["0", "0.0%", "0.0%"],
        ["1", "100.0%", "60.0%"],
        ["2", "0.0%", "0.0%"],
    ]
    assert [line.split()[-3:] for line in lines[9:]] == [["0", "1", "0"], ["0", "3", "0"], ["0", "1", "0"]]


def test_the_metrics_of_the_job_as_json(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(folder, metrics=("recall", "confusion_matrix", "auroc"))
    assert main(["evaluate", "--model", str(model), "-f", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metrics"]["recall"] == pytest.approx(1 / 3)
    assert document["metrics"]["auroc"] == 0.5
    assert document["perClass"] == {"recall": [0, 1, 0], "auroc": [0.5, 0.5, 0.5]}
    assert document["confusion"] == [[0, 1, 0], [0, 3, 0], [0, 1, 0]]


def test_as_json(model: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("loss") == pytest.approx(LOG_SUM - 3 / 5, rel=1e-6)
    sha256 = json.loads(model.with_name("model.json").read_text())["sha256"]
    assert document == {
        "model": {"path": str(model), "sha256": sha256},
        "testDataset": "scans-test",
        "silos": [],
        "samples": 5,
        "accuracy": 0.6,
    }


def test_without_a_test_set_each_silo_is_scored_and_the_mean_weighs_samples(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder, test=False)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    north, south = document["silos"]
    # Half of each class is held out: 2 of class 0 and 6 of class 1 in the north, none of class 1 in the south.
    assert (north["name"], north["samples"], north["accuracy"]) == ("north", 8, 0.75)
    assert (south["name"], south["samples"], south["accuracy"]) == ("south", 4, 0.0)
    assert south["loss"] == pytest.approx(LOG_SUM, rel=1e-6)
    assert (document["testDataset"], document["samples"], document["accuracy"]) == (None, 12, 0.5)
    assert document["loss"] == pytest.approx(LOG_SUM - 6 / 12, rel=1e-6)


def test_the_figures_of_a_regression_as_json_are_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model answers 2 whatever it sees, and every number is 1 or 3; the south has too few to hold one out."""
    from fedsilo.api.loading import load
    from fedsilo.learning.models import build_module, to_tree
    from fedsilo.wire import write_tensors

    for name, numbers in (("north", [1, 3, 1, 3]), ("south", [3])):
        images = np.zeros((len(numbers), INPUTS), np.float32)
        np.savez(tmp_path / f"{name}.npz", images=images, labels=np.array(numbers, np.float32))
    path = manifest(tmp_path, test=False)
    *silos, job = yaml.safe_load_all(path.read_text())
    del job["spec"]["data"]["classes"]
    job["spec"]["task"] = {"name": "regression"}
    path.write_text(yaml.safe_dump_all([*silos, job]))
    spec = load(path).job.spec
    tree = to_tree(build_module(spec.model, spec.data, 0, spec.task))
    tree["classifier.weight"] = np.zeros_like(tree["classifier.weight"])
    tree["classifier.bias"] = np.array([2], np.float32)
    described = {name: job["spec"][name] for name in ("model", "data", "task")}
    described["sha256"] = write_tensors(tree, tmp_path / "model.safetensors").digest
    (tmp_path / "model.json").write_text(json.dumps(described))

    asked = ["evaluate", "--model", str(tmp_path / "model.safetensors"), "-f", str(path), "--json"]
    assert main(asked) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["silos"] == [
        {"name": "north", "samples": 2, "mae": 1, "loss": 1},
        {"name": "south", "samples": 0, "mae": None, "loss": None},
    ]
    assert (document["samples"], document["mae"], document["loss"]) == (2, 1, 1)
    assert "accuracy" not in document


def test_a_silo_without_validation_examples_does_not_count(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels_file(folder / "south.npz", [0, 1, 2])
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder, test=False))]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[:3] for line in lines] == [
        ["north", "8", "75.0%"],
        ["south", "0", "-"],
        ["all", "8", "75.0%"],
    ]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"classes": 4}, "classes: 3: the manifest's spec.data.classes is 4; "),
        ({"shape": (2, 2)}, "inputShape: [4]: the manifest's spec.data.inputShape is [2, 2]; "),
    ],
)
def test_a_model_for_other_data_is_refused(
    asked: dict[str, int], message: str, model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder, **asked))]) == 2  # type: ignore[arg-type]
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith(f"fedsilo: model {model}: {message}")


def test_what_is_missing_is_named(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--model", str(tmp_path / "model"), "-f", str(manifest(folder))]) == 2
    assert f"model {tmp_path / 'model'}: there is no such file" in capsys.readouterr().err
    (folder / "test.npz").unlink()
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder))]) == 3
    assert "dataset 'scans-test'" in capsys.readouterr().err


def test_nothing_to_score_on_says_what_to_change(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("north", "south"):
        labels_file(folder / f"{name}.npz", [0, 1, 2])
    assert main(["evaluate", "--model", str(model), "-f", str(manifest(folder, test=False))]) == 3
    assert "no silo of north, south holds a validation example; raise" in capsys.readouterr().err


def test_the_model_is_the_one_that_the_manifest_names(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the description beside the tensors says that it is."""
    path = manifest(folder)
    description = json.loads(model.with_name("model.json").read_text())
    for name in ("cnn", "python:os:system"):
        other = folder / "model.safetensors"
        other.write_bytes(model.read_bytes())
        described = {**description, "model": {"name": name, "config": {}}}
        other.with_name("model.json").write_text(json.dumps(described))
        assert main(["evaluate", "--model", str(other), "-f", str(path)]) == 2
        assert (
            f"model: {name}: the manifest's spec.model.name is mlp; name the manifest"
            in capsys.readouterr().err
        )
    path.write_text(path.read_text().replace("- 2\n", "- 3\n"))
    assert main(["evaluate", "--model", str(model), "-f", str(path)]) == 2
    assert "is not of the manifest's spec.model, mlp as it is configured there" in capsys.readouterr().err


def test_a_model_that_a_method_made_of_the_manifests_is_scored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedsilo.api.data import DataSpec
    from fedsilo.api.job import ModelSpec
    from fedsilo.learning.models import build_module, to_tree
    from fedsilo.wire import write_tensors

    base = {"name": "mlp", "config": {"hidden": [2]}}
    made = ModelSpec(name="concatenated", config={"encoders": 2, "base": base})
    data = DataSpec(dataset="scans", classes=CLASSES, input_shape=(INPUTS,))
    path = folder / "model.safetensors"
    digest = write_tensors(to_tree(build_module(made, data, seed=0)), path).digest
    described = {
        "model": made.description_fields(),
        "data": data.model_dump(by_alias=True, mode="json"),
        "sha256": digest,
    }
    path.with_name("model.json").write_text(json.dumps(described))
    assert main(["evaluate", "--model", str(path), "-f", str(manifest(folder))]) == 0
    assert "scans-test        5" in capsys.readouterr().out
