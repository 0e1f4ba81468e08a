"""What a job's differential privacy comes to: noise, epsilon, mechanisms, and what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import DataInvalid, FedsiloError
from fedsilo.methods.differential_privacy import (
    job_mechanisms,
    noise_multiplier,
    planned_mechanisms,
)
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.registry import names
from fedsilo.methods.state import State
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import BudgetExceeded, PrivacyLedger
from fedsilo.silo.runner import TaskRunner
from fedsilo.transforms.conflicts import check_job
from fedsilo.transforms.plan import JobPlan
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.tiers import mark_thorough

TEST_SET = {
    "evaluation": {"testDataset": "test", "every": 1},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}


def private_method(method: str = "fedavg", rounds: int = 2, training: Any = None, **given: Any) -> Method:
    """A job with differential privacy; `given` stands in `spec.privacy.differentialPrivacy` or is a section."""
    sections: dict[str, Any] = {
        name: given.pop(name) for name in list(given) if name in ("model", "data", "task")
    }
    config = given.pop("config", {})
    wanted = {"unit": "example", "delta": 1e-3} | ({"epsilon": 3.0} if "noiseMultiplier" not in given else {})
    sections |= TEST_SET | {"training": training or {}, "privacy": {"differentialPrivacy": wanted | given}}
    return bound_method(method, 2, rounds, config, **sections)


def faults(method: Method) -> str:
    return "\n".join(f"{path}: {problem}; {remedy}" for path, _, problem, remedy in check_job(method))


SETTINGS = [
    # noise, batch, examples, rounds, local epochs, delta
    pytest.param(1.0, 32, 300, 20, 1, 1e-3, id="small silo"),
    pytest.param(0.7, 64, 2000, 10, 2, 1e-4, id="little noise"),
    pytest.param(2.0, 100, 6000, 30, 1, 1e-5, id="much noise"),
    pytest.param(1.2, 50, 50, 5, 3, 1e-3, id="whole silo in a batch"),
    pytest.param(1.1, 32, 1000, 7, 1, 1e-4, id="seven of twenty rounds"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "batch", "examples", "rounds", "epochs", "delta"), SETTINGS)
def test_epsilon_agrees_with_opacus_and_dp_accounting(
    noise: float, batch: int, examples: int, rounds: int, epochs: int, delta: float
) -> None:
    """Opacus' accountant of privacy random variables (Gopi et al., 2021) and Google's of loss distributions."""
    training = {"batchSize": batch, "localEpochs": epochs}
    method = private_method(rounds=rounds, training=training, noiseMultiplier=noise, delta=delta)
    steps = rounds * epochs * -(-examples // batch)
    ours = epsilon_of(job_mechanisms(method, examples, noise), delta)

    event = SelfComposedDpEvent(PoissonSampledDpEvent(batch / examples, GaussianDpEvent(noise)), steps)
    assert ours == pytest.approx(PLDAccountant().compose(event).get_epsilon(delta), rel=0.01)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = [(noise, batch / examples, steps)]
        theirs = accountant.get_epsilon(delta, eps_error=0.001 * ours)
    assert ours == pytest.approx(theirs, rel=0.01)


@pytest.mark.parametrize("method", mark_thorough(["fedavg", "ccvr", "fedconcat"], {"ccvr"}))
def test_the_noise_of_a_silo_follows_from_epsilon_over_all_that_it_sends(method: str) -> None:
    config = {"fedconcat": {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1}}.get(method, {})
    job = private_method(method, training={"batchSize": 10}, config=config)
    noise = noise_multiplier(job, 100)
    spent = epsilon_of(job_mechanisms(job, 100, noise), 1e-3)
    assert spent <= 3.0
    assert spent == pytest.approx(3.0, rel=0.005)


def test_statistics_are_counted_beside_the_rounds() -> None:
    training = {"batchSize": 10, "localEpochs": 2}
    assert job_mechanisms(private_method("fedavg", training=training), 100) == (Mechanism(1.0, 0.1, 40),)
    assert job_mechanisms(private_method("ccvr", training=training), 100) == (
        Mechanism(1.0, 0.1, 40),
        Mechanism(1.0, 1.0, 1),
    )
    steps = {"batchSize": 10, "localSteps": 3}
    assert job_mechanisms(private_method("fedavg", training=steps), 100) == (Mechanism(1.0, 0.1, 6),)


@pytest.mark.parametrize("method", ["fedavg", "ccvr", "fedconcat"])
def test_the_plans_of_all_rounds_together_are_the_jobs(method: str) -> None:
    config = {"fedconcat": {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1}}.get(method, {})
    job = private_method(method, training={"batchSize": 10}, config=config)
    planned = [planned_mechanisms(job, exchange.phase.step, 100) for exchange in JobPlan(job).exchanges]
    spent = epsilon_of([each for plan in planned for each in plan], 1e-3)
    assert spent == epsilon_of(job_mechanisms(job, 100, noise_multiplier(job, 100)), 1e-3) <= 3.0


def test_where_the_trainer_adds_no_noise_nothing_is_planned() -> None:
    assert planned_mechanisms(bound_method("fedavg", 2, 2, {}), "train", 100) == ()
    silos: dict[str, Any] = {"unit": "silo", "maxUpdateNorm": 1.0, "delta": 0.2}
    assert planned_mechanisms(private_method(**silos), "train", 100) == ()
    assert planned_mechanisms(private_method(), "evaluate", 100) == ()


def test_more_steps_than_are_counted_are_refused() -> None:
    job = private_method(training={"batchSize": 1, "localEpochs": 1000}, delta=1e-9)
    with pytest.raises(DataInvalid, match=r"2000000000 steps of this silo with 1000000 examples"):
        noise_multiplier(job, 10**6)


def test_silos_that_are_too_small_or_too_large_for_the_job_are_refused() -> None:
    job = private_method(training={"batchSize": 32})
    with pytest.raises(DataInvalid, match="examples: 20 are fewer than a batch of 32"):
        noise_multiplier(job, 20)
    with pytest.raises(
        DataInvalid, match=r"delta: 0\.001 is not below one over the 1000 examples.*less than"
    ):
        noise_multiplier(job, 1000)
    assert noise_multiplier(job, 999) > 0


def test_an_epsilon_that_no_noise_reaches_is_refused() -> None:
    job = private_method(training={"batchSize": 32}, epsilon=1e-6, delta=1e-9)
    with pytest.raises(DataInvalid, match=r"epsilon: a noise multiplier of 10000 has a larger epsilon"):
        noise_multiplier(job, 300)


REFUSED_JOBS: list[tuple[str, Mapping[str, Any], str]] = [
    ("creff", {}, "has no mechanism for averaged_gradients and model"),
    ("moon", {}, "has no mechanism for model"),
    ("fedrs", {}, "has no mechanism for model"),
    (
        "fedavg",
        {"model": {"name": "resnet8", "config": {}}, "data": {"inputShape": [3, 8, 8]}},
        "spec.model.name: has BatchNorm.*GroupNorm",
    ),
    ("fedavg", {"training": {"precision": "bfloat16"}}, "spec.training.precision"),
    ("fedavg", {"training": {"trainer": "python:a.b:c"}}, "spec.training.trainer"),
    ("fedavg", {"data": {"check": "report"}}, "spec.data.check"),
    (
        "fedavg",
        {"task": {"name": "classification", "config": {"classWeights": "balanced"}}},
        "spec.task.name",
    ),
]


@pytest.mark.parametrize(
    ("method", "given", "line"), REFUSED_JOBS, ids=[f"{m}-{line[:24]}" for m, _, line in REFUSED_JOBS]
)
def test_what_nothing_makes_private_is_refused(method: str, given: Mapping[str, Any], line: str) -> None:
    assert re.search(line, faults(private_method(method, **given)))


def test_silos_that_score_are_refused() -> None:
    given = {"unit": "example", "epsilon": 1.0, "delta": 1e-3}
    job = bound_method("fedavg", privacy={"differentialPrivacy": given})
    assert "spec.evaluation.testDataset: is not set, and scores of silos" in faults(job)


def test_a_private_job_of_each_covered_method_has_no_fault() -> None:
    for method in ("fedavg", "fedavgm", "fedopt", "fedconcat", "fedconcat-id", "ccvr"):
        config = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1} if "concat" in method else {}
        assert "differentialPrivacy" not in faults(private_method(method, config=config)), method


def test_a_method_is_covered_only_if_its_silos_train_plainly() -> None:
    covered = {name for name in names() if bound_method(name).training.mechanisms.get("model") == "DP-SGD"}
    assert covered >= {
        "fedavg",
        "fedavgm",
        "fedopt",
        "fedconcat",
        "fedconcat-id",
        "ccvr",
        "tau-norm",
    }
    assert not covered & {"fedprox", "fedrs", "moon", "scaffold", "fedlc", "map", "ditto", "mixup", "creff"}


class Noting:
    """A silo whose replies are noted."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner, self.method, self.replies = runner, runner.method, list[Reply]()

    def run(self, task: SiloTask, private: State) -> Reply:
        self.replies.append(self.runner.run(task, private))
        return self.replies[-1]


def run(
    directory: Path, method: str, config: Mapping[str, Any], **noise: float
) -> tuple[RoundEngine, dict[str, Noting]]:
    directory.mkdir()
    silos = skewed_silos(directory, {"a": [0, 1], "b": [2, 3]})
    private = {"unit": "example", "delta": 1e-3} | (noise or {"noiseMultiplier": 1.5})
    spec = job_spec(
        method,
        ["a", "b"],
        2,
        method={"config": config},
        training={"batchSize": 6},
        privacy={"differentialPrivacy": private, "minSamplesPerClass": 1},
    )
    noting = {name: Noting(runner) for name, runner in runners(spec, silos, directory).items()}
    return federate(directory / "job", spec, noting), noting


CONCAT = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1}


@pytest.mark.parametrize(("method", "config"), [("fedavg", {}), ("ccvr", {}), ("fedconcat", CONCAT)])
def test_all_that_leaves_is_covered(tmp_path: Path, method: str, config: Mapping[str, Any]) -> None:
    """Noisy tensors alone leave a silo, and the mechanisms that its replies name are what was planned."""
    engine, silos = run(tmp_path / "first", method, config)
    assert engine.failure is None
    for noting in silos.values():
        trained = [reply for reply in noting.replies if reply.tensors]
        assert all(reply.metrics == {} for reply in trained)
        spent = [mechanism for reply in trained for mechanism in reply.mechanisms]
        planned = job_mechanisms(noting.runner.method, len(noting.runner.context.train), 1.5)
        assert epsilon_of(spent, 1e-3) == pytest.approx(epsilon_of(planned, 1e-3), rel=1e-9)
        assert all(reply.mechanisms for reply in trained)


def test_the_class_counts_of_fedconcat_are_charged_to_the_institutions_budget(tmp_path: Path) -> None:
    """A whole job comes to the epsilon that it states, the counts among it; of another job not even they may leave."""
    engine, silos = run(tmp_path / "first", "fedconcat", CONCAT, epsilon=3.0)
    assert engine.failure is None
    now = datetime(2026, 7, 1, tzinfo=UTC)
    replies = [reply for reply in silos["silos/a"].replies if reply.tensors]
    assert all(name.startswith("count/") for name in replies[0].tensors)
    ledger = PrivacyLedger(tmp_path / "ledgers", "scans")
    ledger.set_budget(Budget(3.0, 1e-3), now)
    spent = []
    for number, reply in enumerate(replies):
        ledger.charge(Charge("tests/first", "first", f"sha256:{number}", reply.mechanisms), now)
        spent.append(ledger.account(now).spent_epsilon)
    assert 0 < spent[0] < spent[1] < spent[2] <= 3.0
    assert spent[2] == pytest.approx(3.0, rel=0.005)
    with pytest.raises(BudgetExceeded, match=r"job tests/second would bring epsilon to"):
        ledger.charge(Charge("tests/second", "second", "sha256:counts", replies[0].mechanisms), now)


def test_nobody_else_can_draw_the_noise_again(tmp_path: Path) -> None:
    first, second = (run(tmp_path / name, "fedavg", {})[0] for name in ("first", "second"))
    different = [model_of(first)[name] != array for name, array in model_of(second).items()]
    assert np.concatenate([each.ravel() for each in different]).mean() > 0.99


def test_the_same_task_gets_the_same_answer_and_another_model_or_setting_other_noise(tmp_path: Path) -> None:
    """A task that is done again after a crash is no second release."""
    silos = skewed_silos(tmp_path, {"a": [0, 1]})
    given = {"unit": "example", "noiseMultiplier": 1.0, "delta": 1e-3}
    spec = job_spec("fedavg", ["a"], training={"batchSize": 6}, privacy={"differentialPrivacy": given})
    (runner,) = runners(spec, silos, tmp_path).values()
    model = runner.context.initial_model()
    moved = {name: array + np.float32(1e-6) for name, array in model.items()}

    def answer(tree: Mapping[str, np.ndarray], **settings: int) -> np.ndarray:
        reply = runner.run(SiloTask("train", "train", 1, 1, 1, {"model": tree}, settings), State())
        return np.concatenate([array.ravel() for array in reply.tensors.values()])

    first, again, other, setting = answer(model), answer(model), answer(moved), answer(model, steps=2)
    assert (first == again).all()
    assert np.abs(first - other).mean() > 1e-3
    assert np.abs(first - setting).mean() > 1e-3


def test_what_is_refused_in_a_silo_fails_the_job_with_its_reason(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1]})
    given = {"unit": "example", "epsilon": 1.0, "delta": 0.5}
    spec = job_spec("fedavg", ["a"], training={"batchSize": 6}, privacy={"differentialPrivacy": given})
    (runner,) = runners(spec, silos, tmp_path).values()
    task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, {})
    with pytest.raises(FedsiloError, match=r"delta: 0\.5 is not below one over the 24 examples"):
        runner.run(task, State())
