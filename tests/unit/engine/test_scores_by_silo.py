"""Each silo has its own score, by name where all permit it, and a pooled score says what it is of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.data import DataSpec
from fedsilo.api.lost_silos import lost_silos_text
from fedsilo.api.scores import ScoresStatus, score_rows
from fedsilo.api.silo_policy import SiloPolicy
from fedsilo.engine.record import lost_silos
from fedsilo.engine.status import StatusSource
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.local.display import show_result
from fedsilo.methods.interface import EVALUATE
from fedsilo.methods.step import NAMED_SCORES
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.transforms.evaluation.record import evaluation_record
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.secure_sum.summed import OneUpdate
from fedsilo.updates.held import InMemoryUpdates
from tests.federate import LocalSilo, bound_method, job_spec, open_engine, runners, skewed_silos

ACCURACY = ChosenMetrics.of(())


def updates(**scores: tuple[int, float]) -> InMemoryUpdates:
    """Scores of silos by name, as (examples, accuracy); of those whose names begin with `mute`, not to be named."""
    return InMemoryUpdates(
        {
            name: OneUpdate(
                examples,
                {"accuracy": accuracy} | ({} if name.startswith("mute") else {NAMED_SCORES: 1.0}),
                {},
            )
            for name, (examples, accuracy) in scores.items()
        }
    )


def scores_of(found: InMemoryUpdates, asked: tuple[str, ...]) -> ScoresStatus:
    scores = ScoresStatus.of_record({"round": 3, **evaluation_record(found, ACCURACY, 4, asked)})
    assert scores is not None
    return scores


def test_each_silo_has_its_score_and_the_examples_behind_it() -> None:
    found = updates(north=(60, 0.9), south=(20, 0.1))
    scores = scores_of(found, ("north", "south"))
    status = {"metrics": evaluation_record(found, ACCURACY, 4)["metrics"]}
    assert scores.rows(status) == [
        ("north", 60, [0.9]),
        ("south", 20, [0.1]),
        ("all", 80, [pytest.approx(0.7)]),
    ]
    assert (scores.basis, scores.is_whole) == ("80 validation examples of 2 silos", True)


def test_a_silo_that_drops_out_of_the_scores_is_named_beside_them() -> None:
    scores = scores_of(updates(north=(60, 0.9), empty=(0, 0.0)), ("north", "south", "empty"))
    assert scores.basis == "60 validation examples of 1 of 3 silos, without south, empty"
    assert not scores.is_whole
    assert [silo.name for silo in scores.by_silo] == ["north"]


def test_no_silo_is_named_where_one_does_not_permit_it() -> None:
    scores = scores_of(updates(north=(60, 0.9), mute=(20, 0.1)), ("north", "mute"))
    assert (scores.by_silo, scores.rows({})) == ((), [])
    assert scores.refusal is not None
    assert scores.refusal.startswith("mute permits none by name; policy.scores: PerSilo would, ")


def test_by_default_a_policy_permits_no_score_by_name() -> None:
    assert SiloPolicy().scores == "Mean"


@given(values=st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=8))
def test_the_pooled_score_is_the_mean_of_the_silos_scores_by_their_examples(
    values: list[tuple[int, float]],
) -> None:
    found = updates(**{f"s{number}": value for number, value in enumerate(values)})
    *own, (_, examples, [pooled]) = scores_of(found, found.silos).rows(
        {"metrics": evaluation_record(found, ACCURACY, 4)["metrics"]}
    )
    assert examples == sum(count for _, count, _ in own)
    total = sum(count * (figures[0] or 0.0) for _, count, figures in own)
    assert pooled == pytest.approx(total / examples, abs=1e-12)


@pytest.mark.parametrize(
    ("limits", "samples", "named"),
    [
        (ReplyLimits(1, scores_named_from=5), 5, True),
        (ReplyLimits(1, scores_named_from=5), 4, False),
        (ReplyLimits(1, scores_named_from=None), 1000, False),
        (ReplyLimits(1, figures=False, scores_named_from=5), 1000, False),
        (ReplyLimits(1, scores_named_from=5).and_those(ReplyLimits(1, scores_named_from=9)), 8, False),
        (ReplyLimits(1, scores_named_from=5).and_those(ReplyLimits(1, scores_named_from=None)), 99, False),
    ],
)
def test_the_guard_and_not_the_trainer_permits_the_name(
    limits: ReplyLimits, samples: int, named: bool
) -> None:
    for stated in ({"accuracy": 0.5}, {"accuracy": 0.5, NAMED_SCORES: 1.0}):
        assert (NAMED_SCORES in limits.metrics(stated, samples, ["accuracy", NAMED_SCORES])) is named
        assert NAMED_SCORES not in limits.metrics(stated, samples, ["accuracy"])


def test_a_sum_over_silos_names_nobody() -> None:
    assert NAMED_SCORES in JobPlan(bound_method("fedavg")).step(EVALUATE).names
    summed = bound_method("fedavg", aggregation={"secure": True})
    assert NAMED_SCORES not in JobPlan(summed).step(EVALUATE).names


SILOS = {"a": [0, 1], "b": [2, 3], "c": [0, 3]}


def run_job(root: Path, limits: Mapping[str, ReplyLimits], absent: str = "", **sections: Any) -> StatusSource:
    """A job of two rounds at its end; one silo answers its first round only."""
    data = {"dataset": "data", "classes": 4, "inputShape": [6], "validationFraction": 0.25}
    spec = job_spec("fedavg", list(SILOS), 2, data=data, participation={"minSilos": 2}, **sections)
    silos = [
        LocalSilo(root / name.replace("/", "."), name, runner, limits[name[-1]])
        for name, runner in runners(spec, skewed_silos(root, SILOS), root).items()
    ]
    engine = open_engine(root / "aggregator", spec)
    while not engine.ended:
        assert engine.current_exchange is not None
        first = engine.current_exchange.exchange.round == 1
        for silo in silos:
            if silo.reference != absent or first:
                silo.answer(engine)
            elif (sealed := engine.task(silo.reference)) is not None:
                engine.fail(silo.reference, sealed.id, "TrainerLost", "the trainer ended")
        engine.settle()
    return StatusSource(engine, {}, {})


def test_the_status_of_a_job_has_the_scores_by_silo_where_all_permit_it(tmp_path: Path) -> None:
    status = run_job(tmp_path, dict.fromkeys(SILOS, ReplyLimits(1, scores_named_from=1))).status("")
    assert status.scores is not None
    assert [silo.name for silo in status.scores.by_silo] == ["a", "b", "c"]
    weighted = sum(silo.examples * silo.metrics["accuracy"] for silo in status.scores.by_silo)
    assert weighted / status.scores.examples == pytest.approx(status.metrics["accuracy"])
    assert NAMED_SCORES not in status.metrics


def test_a_metric_by_counts_is_each_silo_s_own(tmp_path: Path) -> None:
    named = dict.fromkeys(SILOS, ReplyLimits(1, scores_named_from=1))
    status = run_job(tmp_path, named, evaluation={"metrics": ["recall", "auroc"], "every": 2}).status("")
    assert status.scores is not None
    for silo in status.scores.by_silo:
        assert set(silo.metrics) == {"accuracy", "loss", "recall", "auroc"}
    found = [silo.metrics["auroc"] for silo in status.scores.by_silo]
    assert sum(found) / 3 == pytest.approx(status.scores.pooled_score("auroc", {"metrics": status.metrics}))


def test_a_job_that_ends_with_fewer_silos_than_it_began_with_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = dict.fromkeys(SILOS, ReplyLimits(1, scores_named_from=1))
    status = run_job(tmp_path, limits, absent="silos/c").status("")
    assert status.conditions[-1].message == "ended with 2 of 3 silos, without c"
    assert [silo.state for silo in status.silos] == ["Finished", "Finished", "Failed"]
    assert status.silos[-1].message == "failed in round 2: TrainerLost: the trainer ended"
    document = status.document()
    outcome = {
        "job": "j",
        "method": "fedavg",
        "phase": "Succeeded",
        "rounds": 2,
        "seconds": 1.0,
        "samples": 9,
        **{name: document[name] for name in ("metrics", "scores", "silos")},
        "model": {"path": "model.safetensors", "sha256": "0"},
    }
    show_result(outcome, {}, DataSpec(dataset="data", classes=4, input_shape=(6,)))
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "j: fedavg, 2 rounds, 1 s, ended with 2 of 3 silos, without c"
    assert "lost    c: failed in round 2: TrainerLost: the trainer ended" in rest
    assert any(line.startswith("scored  ") and line.endswith("of 2 of 3 silos, without c") for line in rest)


def test_a_silo_that_answers_again_is_not_lost() -> None:
    first = {"round": 1, "failed": {"n/a": "why"}, "missing": ["n/b"], "samples": {"n/c": 1}}
    lost = lost_silos({}, first)
    assert lost == {"n/a": "failed in round 1: why", "n/b": "was not waited for in round 1"}
    assert lost_silos(lost, {"round": 2, "failed": {}, "missing": [], "samples": {"n/a": 1}}) == {
        "n/b": "was not waited for in round 1"
    }


def test_silos_that_the_job_began_without_are_not_missed() -> None:
    left_out = {"name": "late", "phase": "LeftOut"}
    assert lost_silos_text([{"name": "a", "state": "Finished"}, left_out]) is None
    silos = [{"name": "a", "state": "Finished"}, {"name": "b", "state": "Failed"}, left_out]
    assert lost_silos_text(silos) == "ended with 1 of 2 silos, without b"


def test_rows_for_spreadsheets_are_by_round_and_silo() -> None:
    record = {"round": 1, **evaluation_record(updates(north=(60, 0.5)), ACCURACY, 4, ("north",))}
    assert list(score_rows([record, {"round": 2}])) == [
        {"round": 1, "silo": "north", "examples": 60, "accuracy": 0.5}
    ]
