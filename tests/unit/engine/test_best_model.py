"""A job ends with its best model, stops when nothing improves, keeps checkpoints, and a crash changes no byte of it."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typing_extensions import override

from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.engine.status import StatusSource
from fedsilo.errors import ProvenanceInvalid
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.transforms.conflicts import check_job
from tests.federate import TASK_KEY, bound_method, drive, federate, job_spec, local_silos, open_engine
from tests.unit.engine.synthetic import SyntheticRunner
from tests.unit.engine.test_store import at_every_flush_below
from tests.unit.verification.chains import Lines, edit_and_link, replay_directory, verify_directory

SPEC = job_spec(
    "fedavg",
    2,
    rounds=9,
    evaluation={
        "every": 1,
        "best": {"metric": "accuracy"},
        "patience": 2,
        "minDelta": 0.05,
        "checkpoints": 2,
    },
    aggregator={"keepUpdates": True},
)
SCORES = {1: 0.3, 2: 0.5, 3: 0.52, 4: 0.4}
"""Round 3 is the best, and no improvement by 0.05; so the job ends after round 4."""


class ScoredRunner(SyntheticRunner):
    """Finds each round's model as good as the test wants it."""

    @override
    def run(self, task: SiloTask, private: State) -> Reply:
        if task.step == "evaluate":
            return Reply(samples=1, metrics={"accuracy": SCORES[task.round], "loss": 1.0})
        return super().run(task, private)


def runners() -> dict[str, ScoredRunner]:
    return {f"silos/s{number}": ScoredRunner(f"silos/s{number}") for number in range(2)}


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    federate(root, SPEC, runners())
    return root / "aggregator"


def description(directory: Path, name: str = "model") -> Any:
    return json.loads((directory / f"{name}.json").read_text())


def test_the_result_is_the_best_rounds_model(finished_job: Path, tmp_path: Path) -> None:
    said = description(finished_job)
    assert (said["round"], said["metrics"]) == (3, {"accuracy": 0.52, "loss": 1.0})
    shorter = SPEC.model_copy(update={"training": SPEC.training.model_copy(update={"rounds": 3})})
    federate(tmp_path, shorter.model_copy(update={"evaluation": EvaluationSpec()}), runners())
    last = tmp_path / "aggregator"
    assert (finished_job / "model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()
    assert "round" not in description(last)


def test_a_job_ends_when_nothing_improves_and_says_so(finished_job: Path) -> None:
    engine = open_engine(finished_job, SPEC)
    assert [line["round"] for line in engine.history()] == [1, 2, 3, 4]
    status = StatusSource(engine, {}, {}).status("")
    assert (status.phase, status.progress) == ("Complete", "4/9")
    assert (
        status.conditions[0].message == "ended after round 4 of 9: accuracy had not improved in 2 evaluations"
    )
    assert status.document()["best"] == {"round": 3, "metric": "accuracy", "value": 0.52}
    assert status.score == "accuracy=0.52"


def test_checkpoints_are_models_of_their_rounds(finished_job: Path) -> None:
    kept = finished_job / "checkpoints"
    names = ["round-00002.json", "round-00002.safetensors", "round-00004.json", "round-00004.safetensors"]
    assert sorted(path.name for path in kept.iterdir()) == names
    said = description(kept, "round-00002")
    assert (said["round"], said["metrics"]["accuracy"]) == (2, 0.5)
    assert [line["round"] for line in said["updates"]] == [1, 2]
    assert said["sha256"] != description(kept, "round-00004")["sha256"]


def test_what_ended_early_with_its_best_model_holds_and_folds_to_the_same(finished_job: Path) -> None:
    assert len(verify_directory(finished_job).exchanges) == 8
    replay_directory(finished_job)


def test_a_best_model_that_the_state_does_not_have_is_named(finished_job: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(finished_job, tmp_path / "aggregator"))

    def replace_best_model(lines: Lines) -> None:
        lines[-2]["state"]["trees"]["evaluation.best"] = lines[2]["state"]["trees"]["model"]

    edit_and_link(directory, replace_best_model, TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=r"model: is .*, but the best one of the state is"):
        verify_directory(directory)


def test_a_chain_that_ends_sooner_than_the_jobs_patience_is_not_whole(
    finished_job: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(finished_job, tmp_path / "aggregator"))
    edit_and_link(directory, lambda lines: lines.__delitem__(slice(3, -1)), TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=r"round 2 .r00002-train.: is missing"):
        verify_directory(directory)


@pytest.mark.thorough
def test_killed_at_any_flush_the_job_leaves_the_same_bytes(tmp_path: Path) -> None:
    directory, copies, flushes = tmp_path / "aggregator", list[Path](), count()

    def copy() -> None:
        if next(flushes) % 3 == 0:
            copies.append(tmp_path / f"crash-{len(copies)}")
            shutil.copytree(directory, copies[-1])

    with at_every_flush_below(directory, copy):
        federate(tmp_path, SPEC, runners())
    undisturbed = released_files(directory)
    assert len(undisturbed) == 7, "model, its description and its provenance, and two checkpoints"
    assert len(copies) > 25
    for crash in copies:
        drive(open_engine(crash, SPEC), local_silos(tmp_path / f"silos-{crash.name}", runners()))
        assert released_files(crash) == undisturbed, crash.name


def released_files(directory: Path) -> dict[str, bytes]:
    paths = [directory / f"{name}" for name in ("model.safetensors", "model.json", "provenance.json")]
    return {path.name: path.read_bytes() for path in (*paths, *(directory / "checkpoints").iterdir())}


@pytest.mark.parametrize(
    ("evaluation", "method", "said"),
    [
        (
            {"best": {"metric": "acuracy"}},
            "fedavg",
            ("spec.evaluation.best.metric", "acuracy", "is no figure", "did you mean accuracy?"),
        ),
        (
            {"best": {"metric": "personal_accuracy"}},
            "fedavg",
            ("spec.evaluation.best.metric", "personal_accuracy", "is no figure", "did you mean accuracy?"),
        ),
        (
            {"best": {"metric": "accuracy"}, "patience": 3},
            "ccvr",
            (
                "spec.evaluation.patience",
                3,
                "would end a job of ccvr, whose phases train, calibration",
                "remove it",
            ),
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    evaluation: dict[str, Any], method: str, said: tuple[str, Any, str, str]
) -> None:
    (found,) = check_job(bound_method(method, evaluation=evaluation))
    assert found[:2] == said[:2]
    assert found[2].startswith(said[2])
    assert found[3].startswith(said[3])


def test_a_silos_own_model_can_be_what_counts() -> None:
    assert not list(check_job(bound_method("map", evaluation={"best": {"metric": "personal_accuracy"}})))


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"patience": 2}, "waits for nothing"), ({"minDelta": 0.1}, "belongs to early stopping")],
)
def test_early_stopping_without_what_it_needs_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EvaluationSpec.model_validate(fields)
