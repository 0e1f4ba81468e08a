"""What an aggregator may say in a task beside the model: what is outside of the job's own range is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import MethodError
from fedsilo.methods.components.buffers import zero_like
from fedsilo.methods.components.sizes import share_of
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.silo.runner import TaskRunner
from tests.federate import job_spec, runners, skewed_silos


def runner_of(tmp_path: Path, method: str, config: dict[str, Any], **sections: Any) -> TaskRunner:
    spec = job_spec(method, ["a"], method={"config": config}, **sections)
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    return runner


def task_of(runner: TaskRunner, settings: dict[str, Any], **trees: Tree) -> SiloTask:
    given = {"model": runner.context.initial_model(), **trees}
    return SiloTask("train", "train", 1, 1, 1, given, settings)


@pytest.mark.parametrize("training", [{"localEpochs": 5}, {"localSteps": 5}])
def test_no_silo_does_less_in_a_job_without_stragglers(tmp_path: Path, training: dict[str, int]) -> None:
    runner = runner_of(tmp_path, "fedprox", {}, training={"rounds": 1, "device": "cpu", **training})
    with pytest.raises(MethodError, match="task setting work: 1 has no meaning in a job without stragglers"):
        runner.run(task_of(runner, {"work": 1}), State())


NO_SHARES = [None, True, "1", 0, -1.0, math.nan, math.inf, 1001, 2.0**-54]


@pytest.mark.parametrize("method", ["feddyn", "scaffold"])
@pytest.mark.parametrize("share", [None, 0, True])
def test_a_share_that_no_sizes_give_is_refused(tmp_path: Path, method: str, share: Any) -> None:
    runner = runner_of(tmp_path, method, {"variant": "released" if method == "feddyn" else "feddyn"})
    control = zero_like(runner.context.initial_model())
    task = task_of(runner, {} if share is None else {"share": share}, control=control)
    with pytest.raises(MethodError, match=r"task setting share: .*; run the aggregator and the silos in one"):
        runner.run(task, State())
    assert runner.run(task_of(runner, {"share": 1.5}, control=control), State()).samples == 24


@pytest.mark.parametrize("share", NO_SHARES)
def test_a_share_is_a_number_above_0_and_at_most_that_of_the_silos(share: Any) -> None:
    task = SiloTask("train", "train", 1, 1, 1, {}, {} if share is None else {"share": share})
    with pytest.raises(MethodError, match="task setting share"):
        share_of(task)


@pytest.mark.parametrize("share", [2.0**-53, 1, 1000])
def test_whatever_sizes_give_is_a_share(share: float) -> None:
    assert share_of(SiloTask("train", "train", 1, 1, 1, {}, {"share": share})) == share


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1, 1, 0, 1], "from 0 to 1 are not from 1 to 501"),
        ([1, 1, -1, 1], "from -1 to 1 are not"),
        ([1, 1, math.nan, 1], "from nan to nan are not"),
        ([1, 1, math.inf, 1], "from 1 to inf are not"),
        ([1, 1, 502, 1], "from 1 to 502 are not"),
        ([1, 1, 1], r"float32 of shape \[3\], not float32 of \[4\]"),
        (np.ones(4), r"float64 of shape \[4\]"),
        (None, r"shape \[0\]"),
    ],
)
def test_class_weights_that_no_ratio_gives_are_refused(tmp_path: Path, weights: Any, said: str) -> None:
    """With weights of 0 but for one class, what a silo sends would be of its few examples of that class."""
    runner = runner_of(tmp_path, "ratio-loss", {})
    array = weights if isinstance(weights, np.ndarray) else np.array(weights, np.float32)
    tree = {} if weights is None else {"weights": array}
    with pytest.raises(MethodError, match=f"task tree weights: the weights of the classes .*{said}"):
        runner.run(task_of(runner, {}, weights=tree), State())


def test_class_weights_that_ratios_give_are_not(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, "ratio-loss", {"alpha": 0.1, "beta": 0.3})
    weights = np.array([1, 0.1, 0.1 + 0.3 * 5000, 4], np.float32)
    assert runner.run(task_of(runner, {}, weights={"weights": weights}), State()).samples == 24
