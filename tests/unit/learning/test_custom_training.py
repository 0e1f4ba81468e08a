"""A job's own training function: what it gets, what it may give back, and one line for all that it may do wrong."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError
from fedsilo.learning import confinement
from fedsilo.learning.custom_training import (
    ExampleSet,
    TrainingBudget,
    TrainingContext,
    TrainingData,
    TrainingOutcome,
    import_trainer,
    train_with,
)
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model

TRAINERS_MODULE = "python:tests.unit.learning.trainers:"
EXAMPLES = Examples(torch.arange(40, dtype=torch.uint8).reshape(10, 4), torch.arange(10) % 2)
DATA = TrainingData(ExampleSet(EXAMPLES), ExampleSet(EXAMPLES.take(np.array([3, 1]))))


def model() -> Model:
    torch.manual_seed(0)
    return Model(torch.nn.Flatten(), torch.nn.Linear(4, 2))


def train(name: str, seconds: float = 60) -> TrainingOutcome:
    context = TrainingContext(torch.device("cpu"), 7, 1, 3, TrainingBudget(1, 4, 0.1, seconds))
    return train_with(TRAINERS_MODULE + name, model(), DATA, context, ("loss",))


TRAINER_FAULTS = {
    "raising": "raises ValueError: no such layer at .*trainers.py:[0-9]+; correct the function",
    "leaving": "raises SystemExit: 0 at .*trainers.py:[0-9]+; correct the function",
    "exiting": r"raises SystemExit: os._exit\(0\) at .*trainers.py:[0-9]+; correct the function",
    "diverging": r"returns tensor 'classifier.weight' with NaN or infinity; lower the learning rate",
    "wrapping": "returns a model without tensor 'classifier.weight'; return the architecture",
    "growing": "returns a model with tensor 'mask', which the job's has not",
    "widening": r"returns tensor 'classifier.weight' of shape \[3, 4\] and dtype float32; keep \[2, 4\]",
    "halving": r"returns tensor 'classifier.weight' of shape \[2, 4\] and dtype float16",
    "returning_nothing": "returns a NoneType; return a fedsilo.TrainingOutcome",
    "returning_weights": "returns a OrderedDict as model; return the trained Module",
    "without_samples": "returns samples 0; return the number of examples",
    "claiming": "returns samples 30, more than the 10 examples that it was given; count each example once, in",
    "confiding": "returns metric 'mean_age', which the method does not declare; it declares loss",
    "infinitely_lossy": "returns metric 'loss' of inf; return a finite number",
    "remembering_text": "returns state 'note', a str; keep NumPy arrays",
    "remembering_objects": "returns state that cannot be kept: tensor seen: dtype is object; use float16, float32",
    "remembering_nameless": "returns state that cannot be kept: tensor .* printable ASCII characters",
    "taking_too_few": r"raises TypeError: taking_too_few\(\) takes 1 positional argument but 3 were given; correct",
    "no_function": "is a int; name a function",
}


@pytest.mark.parametrize("name", TRAINER_FAULTS)
def test_each_fault_has_its_line(name: str) -> None:
    with pytest.raises(
        MethodError, match=f"^spec.training.trainer: '{TRAINERS_MODULE}{name}': {TRAINER_FAULTS[name]}"
    ) as caught:
        train(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["counting_in_numpy", "counting_in_tensors"])
def test_numbers_of_numpy_and_pytorch_are_numbers(name: str) -> None:
    outcome = train(name)
    assert (outcome.samples, outcome.metrics) == (3, {"loss": 0.5})
    assert [type(found) for found in (outcome.samples, outcome.metrics["loss"])] == [int, float]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "measuring_half",
            "returns no metric 'examples_seen', which spec.training.trainerMetrics declares; return it",
        ),
        ("measuring_nothing", "returns metric 'dice' of nan; return a finite number"),
        (
            "measuring_too_much",
            r"returns metric 'dice' of 1e\+200; return a number from -1e\+100 to 1e\+100",
        ),
        (
            "confiding",
            "returns metric 'mean_age', which .*; name it in spec.training.trainerMetrics, or leave it out",
        ),
    ],
)
def test_metrics_are_those_that_the_job_declares(name: str, line: str) -> None:
    context = TrainingContext(torch.device("cpu"), 7, 1, 3, TrainingBudget(1, 4, 0.1, 60))
    declared = ("dice", "examples_seen")
    outcome = train_with(f"{TRAINERS_MODULE}measuring", model(), DATA, context, ("loss",), declared)
    assert outcome.metrics == {"loss": 1.0, "dice": 0.5, "examples_seen": 10}
    with pytest.raises(MethodError, match=f"'{TRAINERS_MODULE}{name}': {line}"):
        train_with(TRAINERS_MODULE + name, model(), DATA, context, ("loss",), declared)


@pytest.mark.parametrize("name", [f"{TRAINERS_MODULE}absent", "python:tests.no_such_module:train"])
def test_what_is_not_installed_is_named(name: str) -> None:
    with pytest.raises(ManifestInvalid, match=r"cannot be imported: .*; install its package in the image"):
        import_trainer(name)


def test_a_module_that_raises_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_training.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MethodError, match=r"its module raises ZeroDivisionError: .*broken_training.py:1; "):
        import_trainer("python:broken_training:train")


def test_one_that_never_returns_is_interrupted() -> None:
    with pytest.raises(MethodError, match=r"did not return within 0.05 s, .*; raise the deadline"):
        train("never_returning", seconds=0.05)


def test_a_child_that_comes_back_is_ended_and_the_parent_goes_on() -> None:
    process = os.getpid()
    assert train("forking").samples == 1 + MethodError.exit_code
    assert os.getpid() == process


def test_what_it_prints_is_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "fedsilo.trainer.own"):
        train("printing")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:3] == ["first", "second", " 50 %"]
    assert [(set(line), len(line)) for line in lines[3:]] == [({"x"}, 2000), ({"x"}, 2000), ({"x"}, 1000)]
    assert capsys.readouterr() == ("", "")


def test_it_draws_the_same_numbers_and_leaves_no_trace() -> None:
    torch.manual_seed(5)
    before = (
        torch.get_rng_state(),
        np.random.get_state(legacy=False)["state"]["key"],
        torch.get_num_threads(),
        torch.get_default_dtype(),
    )
    first, second = train("drawing").model, train("drawing").model
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(model().parameters()))
    torch.manual_seed(5)
    after = (
        torch.get_rng_state(),
        np.random.get_state(legacy=False)["state"]["key"],
        torch.get_num_threads(),
        torch.get_default_dtype(),
    )
    assert torch.equal(before[0], after[0]) and np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_examples_are_a_dataset_and_batches() -> None:
    loader = torch.utils.data.DataLoader(DATA.train, batch_size=4)
    features = torch.cat([x for x, _ in loader])
    assert torch.equal(features, EXAMPLES.batch(torch.arange(10))[0])
    assert [len(y) for _, y in DATA.train.batches(4)] == [4, 4, 2]
    assert torch.equal(torch.cat([x for x, _ in DATA.train.batches(4)]), features)
    drawn = torch.cat([x for x, _ in DATA.train.batches(4, seed=1)])
    assert not torch.equal(drawn, features) and torch.equal(drawn.sort(dim=0)[0], features)
    assert len(DATA.validation) == 2 and torch.equal(DATA.validation[0][0], features[3])
    assert list(ExampleSet(EXAMPLES.take(np.array([], np.int64))).batches(4)) == []


def test_nothing_to_learn_from_is_the_datas_fault() -> None:
    empty = TrainingData(ExampleSet(EXAMPLES.take(np.array([], np.int64))), DATA.validation)
    context = TrainingContext(torch.device("cpu"), 7, 1, 3, TrainingBudget(1, 4, 0.1, 60))
    with pytest.raises(FedsiloError, match="give this silo training data"):
        train_with(f"{TRAINERS_MODULE}counting", model(), empty, context, ("loss",))


def test_one_that_catches_its_interruption_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "SECONDS_BETWEEN_INTERRUPTIONS", 0.001)
    monkeypatch.setattr(confinement, "MOST_INTERRUPTIONS", 3)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)
        with suppress(BaseException):
            train("catching_everything", seconds=0.01)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        line = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == MethodError.exit_code
    assert line == (
        f"fedsilo: spec.training.trainer: '{TRAINERS_MODULE}catching_everything': did not return within 0.01 s, and "
        "goes on when it is interrupted; let it do less, and catch no BaseException\n"
    )
