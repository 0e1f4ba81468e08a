"""A job's model card: a golden file, another reader of its metadata, and that both ways of running a job write it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, ModelCardData

from fedsilo.data.schema import Schema, TableColumn
from fedsilo.engine.card_metadata import pipeline_tag
from fedsilo.engine.markdown import escape_markdown, yaml_block
from fedsilo.engine.model_card import FILE, CardContext, model_card
from fedsilo.methods import registry
from fedsilo.methods.fedavg import FedAvg
from fedsilo.simulation.simulate import simulate
from tests.federate import federate, job_spec, open_engine
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.simulation.digits import manifest_of, sharing

GOLDEN = Path(__file__).with_name("golden") / "model_card.md"

SPEC = job_spec(
    "fedavg",
    ["north", "south"],
    rounds=3,
    model={"config": {"hidden": [8]}},
    data={
        "dataset": "tumours",
        "classes": ["malignant", "benign", "odd | <b>*one*</b>"],
        "inputShape": [3],
        "preprocessing": {"standardise": True, "impute": "mean"},
    },
    evaluation={"every": 1, "metrics": ["recall", "f1"], "best": {"metric": "recall"}},
)

SCHEMA = Schema(
    columns=(
        TableColumn("mean_radius", "number"),
        TableColumn("[click](http://evil.example)", "number"),
        TableColumn("ward", "category", ("a", "b`c")),
    ),
    target=TableColumn("diagnosis", "category"),
)


def line(number: int, recall: float, **fields: Any) -> dict[str, Any]:
    """A record of a round."""
    return {
        "round": number,
        "samples": {"silos/north": 4711, "silos/south": 289},
        "failed": {},
        "missing": [],
        "bytes": {"silos/north": 1, "silos/south": 1},
        "metrics": {"accuracy": 0.9, "recall": recall},
        "perClass": {"recall": [1.0, recall, 0.0], "f1": [0.5, 0.75, None]},
        "updates": {},
    } | fields


HISTORY = [
    line(1, 0.25),
    line(2, 0.75),
    line(3, 0.5, samples={"silos/north": 4711}, failed={"silos/south": "TrainerError: out of memory"}),
]

DESCRIPTION: dict[str, Any] = {
    "model": SPEC.model.description_fields(),
    "job": {"name": "tumours", "uid": "6f1c2c0e-0000-4000-8000-000000000001", "specDigest": "5" * 64},
    "sha256": "a" * 64,
    "metrics": HISTORY[1]["metrics"],
    "updates": [{"round": 1, "digests": {"r00001-train-north": "b" * 64, "r00001-train-south": "c" * 64}}],
    "round": 2,
}


def sources(**fields: Any) -> CardContext:
    """What the golden card is made from, with other fields."""
    given: dict[str, Any] = {
        "method": registry.bind(SPEC),
        "description": DESCRIPTION,
        "history": HISTORY,
        "schemata": {"silos/north": SCHEMA, "silos/south": SCHEMA},
        "provenance": "d" * 64,
        "versions": {"fedsilo": "1.2.3"},
    }
    return CardContext(**given | fields)


def test_the_card_is_that_of_the_golden_file() -> None:
    assert model_card(sources()) == GOLDEN.read_text()


def test_hugging_face_reads_its_metadata() -> None:
    data = ModelCard(model_card(sources())).data
    assert isinstance(data, ModelCardData)
    assert (data.library_name, data.pipeline_tag) == ("fedsilo", "tabular-classification")
    assert data.tags == ["federated-learning", "fedavg", "fedsilo-task:classification"]
    found = {result.metric_type: result.metric_value for result in data.eval_results or []}
    assert found == {"accuracy": 0.9, "recall": 0.75}


def test_no_silo_s_own_number_of_examples_is_in_it() -> None:
    text = model_card(sources())
    assert "| training examples, all silos together | 5,000 |" in text
    assert not {"4711", "4,711", "289"} & set(text.split())
    alone = model_card(sources(description=DESCRIPTION | {"round": 3}))
    assert "training examples, all silos together" not in alone


def test_scores_by_silo_are_in_it_where_all_permit_them() -> None:
    own = [{"name": "silos/north", "examples": 7, "metrics": {"accuracy": 0.5}}]
    scores = {"examples": 7, "scored": 1, "asked": 2, "without": ["silos/south"], "withheld": []}
    history = [*HISTORY[:1], HISTORY[1] | {"scores": scores | {"bySilo": own}}, *HISTORY[2:]]
    text = model_card(sources(history=history))
    assert "7 validation examples of 1 of 2 silos, without south, after round 2:" in text
    assert "### By silo\n\n| silo | examples | `accuracy` |\n" in text
    assert "| north | 7 | 0.5 |" in text
    history[1] = HISTORY[1] | {"scores": scores | {"withheld": ["silos/north"]}}
    assert "### By silo" not in model_card(sources(history=history))


@pytest.mark.parametrize(
    ("task", "shape", "expected"),
    [
        (None, [3, 8, 8], "image-classification"),
        (None, [1, 8, 8, 8], None),
        ({"name": "multilabel"}, [6], "tabular-classification"),
        ({"name": "regression"}, [6], "tabular-regression"),
        ({"name": "segmentation"}, [1, 8, 8], "image-segmentation"),
        ({"name": "language", "config": {"vocabulary": 9}}, [16], "text-generation"),
        ({"name": "language", "config": {"vocabulary": 9, "predict": "class"}}, [16], "text-classification"),
        ({"name": "python:hospital.tasks:Survival"}, [6], None),
    ],
)
def test_what_the_model_is_for_has_the_hub_s_name(
    task: dict[str, Any] | None, shape: list[int], expected: str | None
) -> None:
    sections: dict[str, Any] = {} if task is None else {"task": task}
    assert pipeline_tag(job_spec("fedavg", 1, data={"inputShape": shape}, **sections)) == expected


def test_statistics_are_no_model() -> None:
    spec = job_spec("statistics", 2, data={"inputShape": [6]})
    described = DESCRIPTION | {"model": {"name": "statistics", "config": {}}, "metrics": {}}
    text = model_card(sources(method=registry.bind(spec), description=described))
    assert "Statistics of features" in text
    assert not [word for word in ("## Metrics", "load_model", "pipeline_tag", "recall") if word in text]


def test_models_of_silos_own_are_said_to_be_theirs() -> None:
    spec = job_spec("local", 2)
    described = DESCRIPTION | {
        "model": {"name": "local", "config": {}},
        "metrics": {"personal_accuracy": 0.5, "personal_accuracy_spread": 0.1},
    }
    text = model_card(sources(method=registry.bind(spec), description=described))
    assert "Each silo by itself: a network `mlp` of each silo's own for classification" in text
    assert "On each silo's own validation examples, its own model, after round" in text
    assert "| `personal_accuracy` | 0.5 |" in text and "`personal.safetensors`" in text
    assert not [word for word in ("fedsilo.load_model(", "pipeline_tag", "It was scored") if word in text]


def test_markup_in_names_stays_text() -> None:
    assert escape_markdown("a|b\n<i>`c`</i> [d](e) *f*") == r"a\|b \<i\>\`c\`\</i\> \[d\](e) \*f\*"
    assert yaml_block({"name": "```\n````"})[0] == "`````yaml"


def test_an_aggregator_writes_it_and_again_the_same(tmp_path: Path) -> None:
    spec = job_spec("fedavg", 2, rounds=2)
    engine = federate(tmp_path, spec, synthetic_runners(spec))
    directory = tmp_path / "aggregator"
    card = (directory / FILE).read_bytes()
    for name in ("model.safetensors", "provenance.json"):
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() in card.decode()
    assert f"uid `{engine.identity.uid}`" in card.decode()
    assert "the 6 signed updates" in card.decode()
    (directory / FILE).unlink()
    open_engine(directory, spec)
    assert (directory / FILE).read_bytes() == card


def test_a_card_that_cannot_be_made_costs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FedAvg, "citation", 7)
    spec = job_spec("fedavg", 2)
    engine = federate(tmp_path, spec, synthetic_runners(spec))
    assert engine.result is not None
    assert not (tmp_path / "aggregator" / FILE).exists()
    assert "the model card could not be written" in caplog.text


def test_a_job_in_one_process_writes_it_with_what_its_silos_have(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(2), training={"rounds": 1})
    simulate(manifest, tmp_path, tmp_path / "simulated")
    text = (tmp_path / "simulated" / FILE).read_text()
    assert "2 silos announced names and types of the data" in text
    assert "nothing is signed" in text and "provenance.json" not in text
    sha256 = json.loads((tmp_path / "simulated" / "model.json").read_text())["sha256"]
    assert f"`{sha256}`" in text
