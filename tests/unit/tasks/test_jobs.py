"""What of a job does not go with its learning task is refused with the reason; any module goes with fedavg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.data.arrays import checked_arrays
from fedsilo.engine.context import JobContext
from fedsilo.errors import DataInvalid, MethodError
from fedsilo.learning.models import build_module
from fedsilo.learning.saved import load_model
from fedsilo.methods import registry
from fedsilo.simulation.simulate import simulate
from fedsilo.validation import registry_faults
from tests.unit.simulation.digits import manifest_of, sharing
from tests.unit.tasks.specs import data_of, task_of

NETWORKS = "python:tests.unit.tasks.networks"
BALANCED_TASK = {"name": "classification", "config": {"classWeights": "balanced"}}


def faults(scheme: str = "iid", **spec: Any) -> list[str]:
    return [fault.line() for fault in registry_faults(manifest_of(sharing(1, scheme), **spec))]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"task": {"name": "regression"}},
            "spec.data.classes: 10: has no meaning for regression; remove it; ",
        ),
        (
            {"task": BALANCED_TASK, "method": {"name": "fedrs"}},
            'spec.task.config.classWeights: "balanced": has no meaning for method fedrs, which has a loss of its own; ',
        ),
        (
            {"task": {"name": "segmentation"}, "model": {"name": "lenet", "config": {}}},
            'spec.model.name: "lenet": does not give what segmentation learns; use unet, or a python: factory',
        ),
        (
            {
                "task": {"name": "segmentation"},
                "model": {"name": "unet", "config": {}},
                "training": {"rounds": 1, "augmentation": {"flip": True}},
            },
            "spec.training.augmentation: would change images and leave their masks; remove it",
        ),
        (
            {"task": {"name": "multilabel"}, "evaluation": {"metrics": ["recall", "dice"]}},
            'spec.evaluation.metrics[1]: "dice": is a metric of segmentation, and the job\'s learning task is '
            "multilabel; use accuracy, loss, recall, precision, f1, f1_micro, auroc, average_precision, python:",
        ),
        (
            {
                "task": {"name": "python:some.tasks:Own"},
                "evaluation": {"metrics": ["rmse", "python:some.metrics:Own"]},
            },
            "spec.evaluation.metrics[0]: \"rmse\": is a metric of regression, and the job's learning task is one's own,"
            " python:some.tasks:Own; use python:package.module:factory",
        ),
        (
            {"task": {"name": "multilabel"}, "evaluation": {"best": {"metric": "f1"}}},
            'spec.evaluation.best.metric: "f1": is no figure that this job\'s evaluations report; ',
        ),
        (
            {"task": {"name": "multilabel"}, "method": {"name": "creff"}},
            'spec.task.name: "multilabel": has no meaning for method creff, because it is made for examples of exactly',
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_refused(spec: dict[str, Any], said: str) -> None:
    (line,) = faults(**spec)
    assert said in line


def test_a_partition_by_class_needs_one_class_of_each_example() -> None:
    (line,) = faults("dirichlet", task={"name": "multilabel"})
    assert line.endswith(
        'partition.scheme: "dirichlet": divides examples by their class, and an example of multilabel has no single '
        "one; use iid"
    )


def test_any_module_is_trained_and_opens_again(tmp_path: Path) -> None:
    manifest = manifest_of(
        sharing(2),
        model={"name": f"{NETWORKS}:plain_network", "config": {}},
        task=BALANCED_TASK,
        training={"rounds": 3},
    )
    result = simulate(manifest, tmp_path, tmp_path / "run").result
    assert result is not None
    assert result.metrics["accuracy"] > 0.5
    model = load_model(result.path, allow_imports=[NETWORKS])
    assert list(model.state_dict()) == ["body.1.weight", "body.1.bias", "body.3.weight", "body.3.bias"]


def test_a_method_on_features_refuses_a_module_without() -> None:
    job = manifest_of(
        sharing(1), model={"name": f"{NETWORKS}:plain_network", "config": {}}, method={"name": "moon"}
    ).job
    with pytest.raises(
        MethodError, match=r"has no \.encoder and \.classifier, on whose feature method moon works; "
    ):
        JobContext.of(registry.bind(job.spec), ["silo-s0/s0"])


def test_a_module_with_other_outputs_is_refused() -> None:
    spec = manifest_of(sharing(1), model={"name": f"{NETWORKS}:too_wide", "config": {}}).job.spec
    with pytest.raises(MethodError, match=r"network: output of shape \[1, 11\]: make it \[1, 10\]"):
        build_module(spec.model, spec.data, 0)


def test_tokens() -> None:
    task = task_of("language", data_of(3), vocabulary=9)
    found = checked_arrays(np.array([[1, 2, 3, 4]]), np.zeros(1), task)
    assert np.asarray(found.features).tolist() == [[1, 2, 3]]
    assert found.labels.tolist() == [[2, 3, 4]]
    for tokens, said in (
        (
            np.array([[1, 9, 3]]),
            "item 0: token 9 at 1 is none of the 9 of spec.task.config.vocabulary; number tokens",
        ),
        (np.array([[1, 2]]), r"sequences have shape \[2\], but data.inputShape of the job is \[3\]"),
        (np.array([[0.5, 1, 2]]), "tokens have dtype float64; give integers"),
    ):
        with pytest.raises(DataInvalid, match=said):
            checked_arrays(tokens, tokens, task)


def test_a_target_that_is_not_a_number() -> None:
    task = task_of("regression", data_of(2))
    with pytest.raises(
        DataInvalid, match=r"item 1: target nan of output 0 is not a finite number; remove or mend"
    ):
        checked_arrays(np.zeros((2, 2), np.float32), np.array([1.0, np.nan]), task)
