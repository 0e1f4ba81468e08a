"""The silos' own models: scored where they are, reported in mean and spread, by silo only where all permit it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo_policy import PersonalAccuracy, SiloPolicy
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.engine.status import StatusSource
from fedsilo.methods.interface import EVALUATE, PERSONAL_TREE
from fedsilo.methods.step import NAMED_PERSONAL_ACCURACY, PERSONAL_ACCURACY
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.silo.runner import TaskRunner
from fedsilo.transforms.secure_sum.summed import OneUpdate
from fedsilo.updates.figures import personal_accuracy
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.wire import open_update
from tests.federate import LocalSilo, job_spec, open_engine, runners, skewed_silos
from tests.unit.methods.harness import RecordedSilo

CLASSES = {"a": [0, 1], "b": [2, 3], "c": [0, 3]}
VALIDATION = {"dataset": "data", "classes": 4, "inputShape": [6], "validationFraction": 0.25}


def scalar_updates(*values: float, **named: float) -> InMemoryUpdates:
    """Updates of silos that let their accuracy be reported in the mean, and of some that let it be reported by name."""
    some = {f"s{n}": {PERSONAL_ACCURACY: value} for n, value in enumerate(values)}
    metrics = some | {silo: {NAMED_PERSONAL_ACCURACY: value} for silo, value in named.items()}
    return InMemoryUpdates({silo: OneUpdate(1, stated, {}) for silo, stated in metrics.items()})


def test_mean_and_spread_are_over_silos() -> None:
    metrics, by_silo = personal_accuracy(scalar_updates(0.5, 0.7, 0.9))
    assert metrics == {
        PERSONAL_ACCURACY: pytest.approx(0.7),
        "personal_accuracy_spread": pytest.approx(np.std([0.5, 0.7, 0.9])),
        "personal_models": 3,
    }
    assert by_silo == {}


def test_by_silo_only_if_every_one_permits_it() -> None:
    assert personal_accuracy(scalar_updates(a=0.5, b=1.0))[1] == {"a": 0.5, "b": 1.0}
    metrics, by_silo = personal_accuracy(scalar_updates(0.6, a=0.5, b=1.0))
    assert metrics[PERSONAL_ACCURACY] == pytest.approx(0.7)
    assert by_silo == {}


def test_without_a_model_nothing_is_reported() -> None:
    updates = {"a": OneUpdate(1, {"accuracy": 0.5}, {}), "b": OneUpdate(1, {}, {})}
    assert personal_accuracy(InMemoryUpdates(updates)) == ({}, {})


@given(
    rule=st.sampled_from(["Withheld", "Mean", "PerSilo"]),
    stated=st.dictionaries(
        st.sampled_from(["accuracy", "loss", PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY]), st.floats(0, 1)
    ),
)
def test_the_policy_and_not_the_trainer_says_how_far_a_figure_goes(
    rule: PersonalAccuracy, stated: dict[str, float]
) -> None:
    leaving = ReplyLimits(1, rule).metrics(stated)
    others = {name: value for name, value in stated.items() if name in ("accuracy", "loss")}
    assert {name: leaving[name] for name in others} == others
    allowed = {"Withheld": None, "Mean": PERSONAL_ACCURACY, "PerSilo": NAMED_PERSONAL_ACCURACY}[rule]
    wanted = {allowed: stated[PERSONAL_ACCURACY]} if allowed and PERSONAL_ACCURACY in stated else {}
    assert {name: value for name, value in leaving.items() if name not in others} == wanted


def test_by_default_a_figure_is_reported_in_the_mean_alone() -> None:
    assert SiloPolicy().personal_accuracy == "Mean"


def spec_of(**sections: Any) -> FederatedJobSpec:
    return job_spec("map", list(CLASSES), 2, data=VALIDATION, **sections)


def run(
    directory: Path,
    spec: FederatedJobSpec,
    rules: Mapping[str, PersonalAccuracy],
    left_out: str = "",
    evaluation: GlobalEvaluation | None = None,
) -> tuple[RoundEngine, list[LocalSilo], list[Path]]:
    """The job's end, the silos, and copies of all updates."""
    answering: dict[str, Any] = dict(runners(spec, skewed_silos(directory, CLASSES), directory))
    if left_out:
        answering[left_out] = RecordedSilo(answering[left_out], np.array([False, False]))
    silos = [
        LocalSilo(
            directory / silo.replace("/", "."), silo, runner, ReplyLimits(1, rules.get(silo[-1], "Mean"))
        )
        for silo, runner in answering.items()
    ]
    engine = open_engine(directory / "aggregator", spec, evaluation=evaluation)
    sent: list[Path] = []
    while not engine.ended:
        for silo in silos:
            silo.answer(engine)
        assert engine.current_exchange is not None
        for path in engine.current_exchange.directory.glob("*.update"):
            sent.append(directory / f"{len(sent)}.copy")
            sent[-1].write_bytes(path.read_bytes())
        engine.settle()
    assert engine.failure is None
    return engine, silos, sent


def test_a_job_tells_mean_and_spread_and_no_silos_figure(tmp_path: Path) -> None:
    engine, silos, sent = run(tmp_path, spec_of(), {"a": "PerSilo"})
    (*_, last) = engine.history()
    figures = last["metrics"]
    assert figures["personal_models"] == 3
    assert 0 < figures[PERSONAL_ACCURACY] <= 1
    assert {"accuracy", "loss", "personal_accuracy_spread"} < figures.keys()
    assert "personal" not in last
    status = StatusSource(engine, {}, {}).status("")
    assert [silo.personal_accuracy for silo in status.silos] == [None] * 3
    assert status.metrics == figures
    own = [array.tobytes() for silo in silos for array in silo.private_state.tree(PERSONAL_TREE).values()]
    for path in sent:
        content = path.read_bytes()
        assert not any(tensor in content for tensor in own)


def test_where_all_permit_it_the_status_names_them(tmp_path: Path) -> None:
    engine, silos, _ = run(tmp_path, spec_of(), dict.fromkeys("abc", "PerSilo"))
    status = StatusSource(engine, {}, {}).status("")
    found = [silo.personal_accuracy or 0.0 for silo in status.silos]
    assert np.mean(found) == pytest.approx(status.metrics[PERSONAL_ACCURACY])
    for silo, accuracy in zip(silos, found, strict=True):
        assert engine.history()[-1]["personal"][silo.reference] == accuracy


def test_a_withheld_figure_is_in_no_update(tmp_path: Path) -> None:
    engine, _, sent = run(tmp_path, spec_of(), {"a": "Withheld"})
    assert engine.history()[-1]["metrics"]["personal_models"] == 2
    for path in sent:
        with open_update(path) as update:
            assert update.header.sender != "silos/a" or PERSONAL_ACCURACY not in update.header.metrics


def test_a_silo_that_was_never_drawn_is_not_among_the_models(tmp_path: Path) -> None:
    spec = spec_of(participation={"minSilos": 2})
    engine, silos, _ = run(tmp_path, spec, {}, left_out="silos/c")
    assert PERSONAL_TREE not in silos[2].private_state.trees
    assert engine.history()[-1]["metrics"]["personal_models"] == 2


def test_with_a_test_set_silos_score_their_own_models_alone(tmp_path: Path) -> None:
    held = {"name": "test", "loader": "npz", "config": {"path": str(tmp_path / "a.npz")}}
    config = {"path": str(tmp_path / "a.npz"), "features": "images", "labels": "labels"}
    spec = spec_of(
        evaluation={"testDataset": "test", "every": 1}, aggregator={"datasets": [held | {"config": config}]}
    )
    skewed_silos(tmp_path, CLASSES)
    engine, _, sent = run(tmp_path, spec, {}, evaluation=GlobalEvaluation(spec, tmp_path))
    for line in engine.history():
        assert {"accuracy", "loss", PERSONAL_ACCURACY} < line["metrics"].keys()
    scored = 0
    for path in sent:
        with open_update(path) as update:
            if EVALUATE in update.header.task:
                scored += 1
                assert set(update.header.metrics) == {PERSONAL_ACCURACY}
    assert scored == 6


def test_without_validation_examples_a_silo_tells_nothing(tmp_path: Path) -> None:
    spec = job_spec("map", ["a"], 1)
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    assert isinstance(runner, TaskRunner)
    engine = open_engine(tmp_path / "aggregator", spec)
    silo = LocalSilo(tmp_path / "silo", "silos/a", runner)
    while not engine.ended:
        silo.answer(engine)
        engine.settle()
    assert engine.history()[-1]["metrics"] == {}
