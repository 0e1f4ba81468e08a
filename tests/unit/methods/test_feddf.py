"""FedDF against the released student's numbers, and what the distillation does and does not touch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typing_extensions import override

from fedsilo.engine.context import JobContext
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.learning.distilling import CHECK_STEPS, Distillation, distil
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, to_tree
from fedsilo.methods import registry
from fedsilo.methods.feddf import GRADIENT_CLIP, FedDF, FedDFServer
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree
from tests import reference_numbers
from tests.federate import federate, job_spec, model_of, references, runners, skewed_silos
from tests.public_examples import dataset
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import ROUND, answers, assert_close

FIXTURE = "feddf_student"


class ThreeSteps(FedDFServer):
    """The recorded student took three steps on all examples, at the first step's rate."""

    @override
    def plan(self, seed: int, examples: int) -> Distillation:
        return replace(super().plan(seed, examples), steps=3, cosine=False, patience=None)


def recorded_job(config: dict[str, Any]) -> JobContext:
    """A job whose public dataset is the fixture's."""
    path = str(reference_numbers.path(FIXTURE))
    held = dataset([6], 4) | {
        "loader": "npz",
        "config": {"path": path, "features": "x", "labels": "x"},
    }
    spec = job_spec(
        "feddf",
        ["a", "b"],
        method={"config": config},
        aggregation={"publicDataset": "public"},
        aggregator={"datasets": [held]},
    )
    method = registry.bind(spec)
    return JobContext.of(method, references(spec), public=PublicDataset.of(method, Path()))


class Teachers:
    """Updates with the silos' models; their mean is given apart, as the recorded student is none."""

    def __init__(self, updates: Updates, student: Tree) -> None:
        self._updates, self._student = updates, student
        self.silos, self.tensors, self.samples = updates.silos, updates.tensors, updates.samples

    def mean(self, kind: str) -> Tree:
        del kind
        return self._student


@pytest.mark.parametrize(
    ("scheme", "ensemble"),
    [("avg_logits", "logits"), ("avg_probs", "probabilities"), ("avg_losses", "probabilities")],
)
def test_the_student_is_that_of_the_released_code(scheme: str, ensemble: str) -> None:
    """The mean of the divergences from each teacher has the gradient of the divergence from the mean."""
    npz = reference_numbers.load(FIXTURE)
    config = {"ensemble": ensemble, "learningRate": float(npz["lr"])}
    job = recorded_job(config)
    assert float(npz["clip"]) == GRADIENT_CLIP
    sent = {f"silos/{silo}": {"model": fixture_tree(npz, f"teacher{k}/")} for k, silo in enumerate("ab")}
    updates: Any = Teachers(answers(sent), fixture_tree(npz, "student/"))
    method = registry.bind(job.spec)
    assert isinstance(method, FedDF)
    after = ThreeSteps(method.config).aggregate(job, State({}), ROUND, updates).tree("model")
    assert_close(after, fixture_tree(npz, f"{scheme}/after/"))


def student_and_targets(n: int = 40) -> tuple[Model, Examples, torch.Tensor]:
    torch.manual_seed(0)
    model = Model(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)), nn.Linear(5, 4))
    examples = Examples(torch.randn(n, 6), torch.zeros(n, dtype=torch.int64))
    return model, examples, torch.randn(n, 4).softmax(dim=1)


def test_batchnorm_keeps_its_statistics_and_modules_their_modes() -> None:
    model, examples, targets = student_and_targets()
    before = {name: array.copy() for name, array in to_tree(model).items()}
    distil(model, examples, targets, Distillation(lr=0.01, steps=5, batch_size=8, seed=1))
    assert model.training
    for name, array in to_tree(model).items():
        assert np.array_equal(array, before[name]) is ("running" in name or "batches" in name), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_a_gain_it_ends_early_with_the_weights_that_it_began_with() -> None:
    model, examples, _ = student_and_targets()
    with torch.no_grad():
        targets = model.eval()(examples.features).softmax(dim=1)
    before = {name: array.copy() for name, array in to_tree(model).items()}
    seen = []
    model.register_forward_hook(lambda *_: seen.append(1))
    plan = Distillation(lr=0.1, steps=100_000, batch_size=40, seed=1, patience=CHECK_STEPS)
    distil(model, examples, targets, plan)
    assert len(seen) == CHECK_STEPS + 2  # and a look before and after
    assert all(np.array_equal(array, before[name]) for name, array in to_tree(model).items())


def test_a_single_public_example_will_do() -> None:
    model, examples, targets = student_and_targets(1)
    distil(model, examples, targets, Distillation(lr=0.01, steps=3, batch_size=8, seed=1, patience=1))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def trained_model(tmp_path: Path, name: str, steps: int = 20, **public: Any) -> Tree:
    """The model of silos that train so far that their models' mean is not their ensemble."""
    optimizer = {"learningRate": 0.5}
    spec = job_spec(
        "feddf",
        ["a", "b"],
        2,
        method={"config": {"steps": steps, "learningRate": 0.01}},
        training={"rounds": 2, "device": "cpu", "localEpochs": 10, "optimizer": optimizer},
        aggregation={"publicDataset": "public"},
        aggregator={"datasets": [dataset([6], 4, each=10, **public)]},
    )
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    return model_of(federate(tmp_path / name, spec, runners(spec, silos, tmp_path)))


def test_labels_of_public_examples_are_not_read_and_may_be_none_of_the_jobs(tmp_path: Path) -> None:
    plain, other = trained_model(tmp_path, "plain"), trained_model(tmp_path, "longer", steps=30)
    assert any(not np.array_equal(array, other[name]) for name, array in plain.items())
    for name, array in trained_model(tmp_path, "others", first=90).items():
        assert np.array_equal(array, plain[name])
