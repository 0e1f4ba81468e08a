"""All that leaves a silo under differential privacy: handed out to the bit, clipped and noised, or free of examples.

Every field of what travels has a row here, and a field without one fails. Then every method that such a job may have
plays it in each of its forms, for each unit, with a network that has state of every kind and silos that say more than
they were asked; each update is read as the aggregator reads it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.api.budgets import LaterBudget, StatedLedger
from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.parameters import ParametersSpec
from fedsilo.api.receipts import StatedDeparture, StatedReceipts
from fedsilo.api.silo import Silo
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import DataInvalid
from fedsilo.learning.models import Model
from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE, PREPROCESSING, Reply, SiloTask
from fedsilo.methods.method import averaging_of
from fedsilo.methods.state import State, Tree
from fedsilo.silo.examples import require_listed
from fedsilo.silo.runner import TaskRunner
from fedsilo.silo.secret import Secret
from fedsilo.silo.withholding import vouched_schema, withholds_texts
from fedsilo.simulation.silos import SimulatedFailure
from fedsilo.transforms.conflicts import check_job
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.training_noise.unprotected_tensors import trainer_adds_noise
from fedsilo.wire import Contract, Task, UpdateHeader, open_blob, open_task, open_update, task_digest
from fedsilo.wire.header import TensorEntry
from tests.federate import TASK_KEY, LocalSilo, drive, job_spec, open_engine, runners, silo_of_file
from tests.unit.methods.forms import FIRST_FORMS, FORMS, ROUNDS

TEST_SET: dict[str, dict[str, Any]] = {
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}
EXAMPLE: dict[str, Any] = {"unit": "example", "noiseMultiplier": 1.5, "delta": 1e-3}
PRIVACY_SPECS: dict[str, dict[str, Any]] = {
    "example": EXAMPLE,
    "person": EXAMPLE | {"unit": "person"},
    "silo": {"unit": "silo", "noiseMultiplier": 1.5, "delta": 0.01, "maxUpdateNorm": 1.0},
}


@dataclass(frozen=True)
class Departure:
    """An update that has left, and what it answers.

    :param noised: tensors of the same reply with the noise of another secret, where the trainer adds it; the reply
        before the guard has added any, where that does.
    """

    unit: str
    silo: LocalSilo
    sealed: bytes
    contract: Contract
    handed_out: Mapping[str, Tree]
    other: Mapping[str, np.ndarray]

    @property
    def task(self) -> Task:
        return open_task(self.sealed, TASK_KEY.verify_key)


def names_of(contract: Contract) -> set[str]:
    return {block.name for block in contract.blocks}


HEADER: dict[str, Callable[[UpdateHeader, Departure], bool]] = {
    # Of the signed task, which the silo was handed.
    "job": lambda header, left: header.job == left.task.job,
    "task": lambda header, left: header.task == left.task.task,
    "round": lambda header, left: header.round == left.task.round,
    "task_digest": lambda header, left: header.task_digest == task_digest(left.sealed),
    "contract": lambda header, left: header.contract.hex() == left.contract.digest(),
    "algorithm": lambda header, left: header.algorithm == left.contract.algorithm,
    # Who the silo is, which is not protected.
    "sender": lambda header, left: header.sender == left.silo.reference,
    "key_id": lambda header, left: header.key_id == left.silo.key.verify_key.key_id,
    # Withheld: the same whatever the silo has.
    "samples": lambda header, left: header.samples == 0,
    "metrics": lambda header, left: header.metrics == {},
    # Looked at one by one.
    "blocks": lambda header, left: {entry.name for entry in header.blocks} <= names_of(left.contract),
}
"""Field of an update's header -> that it says nothing of the silo's examples."""

BLOCKS = {
    "name": "of the contract; a class's is there or not by its noisy count",
    "kind": "of the contract",
    "dtype": "of the contract",
    "shape": "of the contract, or what an encoding makes of noised tensors",
    "offset": "of the layout",
    "length": "of the layout",
    "digest": "of the tensor, which is handed out or noised",
}
"""Field of a block -> what it follows from; its content is looked at tensor by tensor."""

UNLISTED_SILO = Silo.model_validate(
    {
        "metadata": {"name": "north", "namespace": "silo-north"},
        "spec": {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]},
    }
)
"""An institution whose manifest lists no columns."""

SCHEMA: dict[str, Callable[[Schema, Schema], bool]] = {
    # None is what is not told.
    "classes": lambda told, had: told.classes is None,
    "value_range": lambda told, had: told.value_range is None,
    # Those of the institution's own manifest, which has none here.
    "columns": lambda told, had: told.columns is None,
    "target": lambda told, had: told.target is None,
    # The job's.
    "channels": lambda told, had: told.channels == had.channels,
}
"""Field of what is announced before round 1 -> what is told of it where the job lists no names of classes."""

FIELD_SOURCES: dict[type, dict[str, str]] = {
    TableColumn: {
        "name": "the dataset's description",
        "type": "the dataset's description",
        "categories": "the dataset's description",
    },
    StatedReceipts: {
        "audit_lines": "what was exchanged",
        "audit_hash": "what was exchanged",
        "updates": "what was exchanged",
        "bytes": "updates as they left",
        "latest": "updates as they left",
    },
    StatedDeparture: {
        "round": "the task",
        "phase": "the task",
        "kinds": "updates as they left",
        "bytes": "updates as they left",
        "digest": "updates as they left",
        "outcome": "the aggregator's answer",
    },
    StatedLedger: {
        "dataset": "the dataset's description",
        "lines": "what was exchanged",
        "hash": "what was exchanged, and the number of records",
        "delta": "the policy",
        # Of noise multipliers and rates of sampling, which follow from the number of records alone.
        "spent": "the number of records",
        "of_job": "the number of records",
        "later": "the number of records",
    },
    LaterBudget: {"since": "when it was exchanged", "spent": "the number of records"},
    SimulatedFailure: {
        "reason": "a word of a list",
        "message": "a text; docs/security.md, what a silo reports of a failure",
        "schema": "what is announced, below",
        "findings": "nothing: such a job is refused",
    },
}
"""What else travels -> field -> what it follows from, which is the same whatever any single example is."""


def test_every_field_that_travels_has_a_row_here() -> None:
    assert {field.name for field in fields(UpdateHeader)} == HEADER.keys()
    assert {field.name for field in fields(TensorEntry)} == BLOCKS.keys()
    assert {field.name for field in fields(Schema)} == SCHEMA.keys()
    for document, rows in FIELD_SOURCES.items():
        known = getattr(document, "model_fields", None) or document.__dataclass_fields__  # type: ignore[attr-defined]
        assert known.keys() == rows.keys(), document


class Encoder(nn.Module):
    """State of every kind that training leaves as it is: weights that learn are `hidden` alone.

    :param exact: whether some has no fractions.
    """

    mean: Tensor
    scale: Tensor
    table: Tensor

    def __init__(self, inputs: int, exact: bool) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, 5)
        self.centre = nn.Parameter(torch.linspace(-1, 1, 5), requires_grad=False)
        self.register_buffer("mean", torch.linspace(0, 1, 5))
        self.register_buffer("scale", torch.tensor(0.5))
        if exact:
            self.register_buffer("seen", torch.tensor(7))
            self.register_buffer("active", torch.tensor([True, True, False, True, True]))
        self.register_buffer("table", torch.arange(5.0), persistent=False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        shifted = torch.relu(self.hidden(x)) + self.centre - self.mean
        return self.scale * shifted + 0.01 * self.table


def network(input_shape: tuple[int], classes: int, exact: bool = True) -> Model:
    """A network for `spec.model.name`."""
    return Model(Encoder(*input_shape, exact), nn.Linear(5, classes))


def model_of(unit: str) -> dict[str, Any]:
    """The network of a job; one with a tensor of integers gives no update where the unit is a silo."""
    return {"name": f"python:{__name__}:network", "config": {"exact": unit != "silo"}}


UNTRAINED_TENSORS = {f"encoder.{name}" for name in ("centre", "mean", "scale", "seen", "active")}


class Talkative:
    """A silo whose half also states every figure that the contract allows, and does each task with two secrets."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner, self.method = runner, runner.method
        self.other: Mapping[str, np.ndarray] = {}

    def run(self, task: SiloTask, private: State) -> Reply:
        reply = self.runner.run(task, private)
        self.other = {name: np.array(array) for name, array in reply.tensors.items()}
        if trainer_adds_noise(self.method.spec):
            again = copy.copy(self.runner)
            again.context = replace(self.runner.context, secret=Secret())
            self.other = again.run(task, private).tensors
        contract = JobPlan(self.method).contract(task.step, self.runner.context.signature, task.settings)
        return replace(reply, metrics=dict.fromkeys(contract.metrics, 0.5))


class RecordingSilo(LocalSilo):
    """A silo whose updates are looked at when they leave."""

    def __init__(self, directory: Path, reference: str, talkative: Talkative, unit: str) -> None:
        super().__init__(directory, reference, talkative)
        self.talkative, self.unit = talkative, unit
        self.kinds: set[str] = set()

    @override
    def sign(self, engine: RoundEngine, contract: Contract, sealed: bytes) -> Path:
        path = super().sign(engine, contract, sealed)
        task = open_task(sealed, TASK_KEY.verify_key)
        trees = {link.name: dict(open_blob(engine.blob(link.digest)).tree()) for link in task.blobs}  # type: ignore[arg-type]
        left = Departure(self.unit, self, sealed, contract, trees, self.talkative.other)
        with open_update(path) as update:
            for name, is_free in HEADER.items():
                assert is_free(update.header, left), (name, getattr(update.header, name))
            found = {entry.name: np.array(update.tensor(entry.name)) for entry in update.header.tensors}
        for block in contract.blocks:
            if block.name in found:
                self.kinds.add(self.kind_of(block.kind, block.name, found[block.name], left))
        return path

    def kind_of(self, kind: str, name: str, array: np.ndarray, left: Departure) -> str:
        """Which of both a tensor is.

        :raises AssertionError: neither.
        """
        for tree in left.handed_out.values():
            if name in tree and np.array_equal(array, tree[name]):
                assert self.unit != "silo", f"{name} has no noise"
                return "handed out"
        assert name not in UNTRAINED_TENSORS or self.unit == "silo", name
        if kind == "model":
            differs = array != left.other[name]
            assert np.mean(differs) > 0.95, f"{name} is the same with other noise"
        return "noised"


def faults(spec: FederatedJobSpec) -> set[str]:
    """Fields of a job that its differential privacy does not cover."""
    return {path for path, *_ in check_job(registry.bind(spec))}


def spec_of(form: str, unit: str, **sections: Any) -> FederatedJobSpec:
    method, config = FORMS[form]
    given: dict[str, Any] = {
        "method": {"config": config},
        "model": model_of(unit),
        "training": {"batchSize": 6, "optimizer": {"learningRate": 0.05}},
        "privacy": {"differentialPrivacy": PRIVACY_SPECS[unit], "minSamplesPerClass": 1},
        "aggregation": {"weights": "uniform"},
        **TEST_SET,
    }
    return job_spec(method, ["a", "b"], ROUNDS, **given | sections)


PRIVATE_FORMS = [(form, unit) for form in FORMS for unit in PRIVACY_SPECS if not faults(spec_of(form, unit))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the silos' data: of `a` 24 examples of 12 persons, of `b` 30 of 10."""
    folder = tmp_path_factory.mktemp("silos")
    rng = np.random.default_rng(0)
    for name, count, persons in (("a", 24, 12), ("b", 30, 10)):
        labels = np.arange(count) % 4
        images = (rng.normal(0, 0.3, (count, 6)) + np.eye(6)[labels]).astype(np.float32)
        np.savez(folder / f"{name}.npz", images=images, labels=labels, patients=np.arange(count) % persons)
    return folder


def test_methods_of_each_unit_are_played() -> None:
    methods = {
        unit: {FORMS[form][0] for form, other in PRIVATE_FORMS if other == unit} for unit in PRIVACY_SPECS
    }
    assert methods["example"] == methods["person"] >= {"fedavg", "fedopt", "fedconcat", "ccvr", "tau-norm"}
    assert methods["silo"] >= {"fedavg", "fedprox", "moon"}


def play(
    root: Path, folder: Path, spec: FederatedJobSpec, unit: str
) -> tuple[RoundEngine, list[RecordingSilo]]:
    """A whole job whose updates are all looked at."""
    silos = [silo_of_file(folder / f"{name}.npz", name) for name in ("a", "b")]
    for silo in silos:
        silo.spec.datasets[0].config["person"] = "patients"
    engine = open_engine(root / "aggregator", spec)
    watched = [
        RecordingSilo(root / name.replace("/", "."), name, Talkative(runner), unit)
        for name, runner in runners(spec, silos, folder).items()
    ]
    drive(engine, watched)
    assert engine.failure is None
    return engine, watched


def played_forms() -> list[ParameterSet]:
    """Forms that are played: where persons are protected, the first of each method.

    Persons differ from examples in what is drawn, which no method's half sees. What is not thorough is for each method
    the unit of which its first form has its turn.
    """
    first = [form for form in FIRST_FORMS.values() if any(form == other for other, _ in PRIVATE_FORMS)]
    played = []
    for form, unit in PRIVATE_FORMS:
        if form not in first and unit == "person":
            continue
        units = [other for known, other in PRIVATE_FORMS if known == form]
        quick = form in first and unit == units[first.index(form) % len(units)]
        marks = [] if quick else [pytest.mark.thorough]
        played.append(pytest.param(form, unit, id=f"{form}-{unit}", marks=marks))
    return played


@pytest.mark.parametrize(("form", "unit"), played_forms())
def test_every_tensor_and_figure_that_leaves_is_handed_out_or_noised_or_free_of_the_data(
    tmp_path: Path, folder: Path, form: str, unit: str
) -> None:
    engine, watched = play(tmp_path, folder, spec_of(form, unit), unit)
    for silo in watched:
        assert silo.kinds == ({"noised"} if unit == "silo" else {"handed out", "noised"})
    for line in engine.history():
        assert line.get("training", {}) == {}
        assert set(line.get("samples", {}).values()) <= {0}


def test_no_silo_is_asked_for_scores_or_for_statistics_of_raw_values() -> None:
    """Nor would its guard answer: of scores the best round is chosen, which would be a choice by their examples."""
    for form, unit in PRIVATE_FORMS:
        for parameters in (None, ParametersSpec(local=("classifier.*",))):
            spec = spec_of(form, unit)
            model = spec.model.model_copy(update={"parameters": parameters})
            asked = JobPlan.of(spec.model_copy(update={"model": model})).exchanges
            assert not {EVALUATE, PREPROCESSING} & {exchange.phase.step for exchange in asked}, form


@pytest.mark.parametrize("unit", PRIVACY_SPECS)
def test_the_best_round_is_chosen_by_scores_on_nobodys_examples(unit: str) -> None:
    best = {"best": {"metric": "accuracy", "mode": "max"}}
    assert not faults(spec_of("fedavg", unit, evaluation=TEST_SET["evaluation"] | best))
    assert faults(spec_of("fedavg", unit, evaluation=best)) == {"spec.evaluation.testDataset"}


@pytest.mark.parametrize("unit", PRIVACY_SPECS)
def test_what_is_announced_follows_from_no_example(unit: str) -> None:
    column = TableColumn("age", "number")
    had = Schema(("ill", "well"), (column,), column, 3, "0 to 1")
    spec = spec_of("fedavg", unit)
    had = replace(had, channels=spec.data.input_shape[0])
    told = vouched_schema(had, spec, UNLISTED_SILO)
    for name, is_free in SCHEMA.items():
        assert told is not None and is_free(told, had), name
    listed = vouched_schema(had, spec_of("fedavg", unit, data={"classes": ["ill", "well"]}), UNLISTED_SILO)
    assert listed == replace(had, columns=None, target=None, value_range=None)
    assert withholds_texts(spec, UNLISTED_SILO)
    assert not withholds_texts(spec_of("fedavg", unit, privacy={"differentialPrivacy": None}), UNLISTED_SILO)


@pytest.mark.parametrize("unit", ["example", "person"])
def test_no_silo_weighs_by_a_number_that_does_not_leave(unit: str) -> None:
    assert averaging_of(registry.bind(spec_of("fedavg", unit, aggregation={"weights": None}))) == "uniform"
    by_samples = spec_of("fedavg", unit, aggregation={"weights": "samples"})
    assert faults(by_samples) == {"spec.aggregation.weights"}


@pytest.mark.parametrize("unit", PRIVACY_SPECS)
def test_classes_that_are_numbered_by_names_must_be_listed_where_names_do_not_leave(unit: str) -> None:
    """Else one silo's first class might be another's second, and nobody would know."""
    folders = DatasetSpec(name="scans", loader="imagefolder", config={"path": "scans"})
    found = Schema(("ill", "well"))
    with pytest.raises(
        DataInvalid, match=r"dataset 'scans': numbers its classes by name.*spec\.data\.classes"
    ):
        require_listed(spec_of("fedavg", unit), folders, found)
    require_listed(spec_of("fedavg", unit, data={"classes": ["ill", "well"]}), folders, found)
    require_listed(spec_of("fedavg", unit, privacy={"differentialPrivacy": None}), folders, found)
    digits = DatasetSpec(name="digits", loader="sklearn:digits")
    require_listed(spec_of("fedavg", unit), digits, found)
