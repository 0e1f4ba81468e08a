"""Which exchanges there are, and which silos take part: the same on every machine and after every restart."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE, Exchange, Phase
from fedsilo.methods.schedule import exchange_id, is_task_of, participants, rounds_of, task_id
from fedsilo.transforms.evaluation.declaration import EvaluationTransform
from tests.federate import job_spec, references

TRAIN = Phase("train", 3, "train")
fractions = st.integers(1, 20).map(lambda n: n / 20)


@settings(max_examples=60)
@given(silos=st.integers(1, 12), fraction=fractions, round=st.integers(1, 50), seed=st.integers(0, 2**53 - 1))
def test_the_sample_has_its_size_and_the_order_of_the_references(
    silos: int, fraction: float, round: int, seed: int
) -> None:
    spec = job_spec("fedavg", silos, training={"seed": seed}, participation={"fraction": fraction})
    everybody = references(spec)
    drawn = participants(spec, Exchange(TRAIN, round, round, 50), everybody)
    assert len(drawn) == spec.participation.sample_size(silos)
    assert list(drawn) == sorted(set(drawn), key=everybody.index)
    assert drawn == participants(spec, Exchange(TRAIN, round, round, 50), everybody)
    assert set(drawn) == set(participants(spec, Exchange(TRAIN, round, round, 50), everybody[::-1]))


def test_each_silo_is_drawn_about_equally_often_and_rounds_differ() -> None:
    spec = job_spec("fedavg", 10, participation={"fraction": 0.3})
    rounds = [participants(spec, Exchange(TRAIN, n, n, 1000), references(spec)) for n in range(1, 1001)]
    counts = Counter(silo for drawn in rounds for silo in drawn)
    # 1000 draws with p = 0.3 have a standard deviation of 14.5.
    assert all(abs(counts[silo] - 300) < 5 * 14.5 for silo in references(spec))
    assert len(set(rounds)) > 100  # of the 120 possible sets


def test_phases_for_everyone_ignore_the_fraction() -> None:
    spec = job_spec("fedavg", 4, participation={"fraction": 0.25})
    statistics = Phase("statistics", 1, "statistics", everyone=True)
    assert participants(spec, Exchange(statistics, 1, 1, 1), references(spec)) == references(spec)


def test_without_a_test_set_the_silos_evaluate_every_nth_and_the_last_round() -> None:
    spec = job_spec("fedavg", 2, rounds=5, evaluation={"every": 2})
    rounds = rounds_of((Phase("a", 2, "train"), Phase("b", 3, "train")))
    found = [(e.round, e.phase.name) for e in EvaluationTransform(registry.bind(spec)).plan(rounds)]
    assert found == [
        *[(1, "a"), (2, "a"), (2, EVALUATE)],
        *[(3, "b"), (4, "b"), (4, EVALUATE), (5, "b"), (5, EVALUATE)],
    ]


def test_with_a_test_set_there_are_training_exchanges_only_numbered_within_their_phase() -> None:
    test_set = {"name": "test", "loader": "sklearn:digits"}
    spec = job_spec("fedavg", 2, evaluation={"testDataset": "test"}, aggregator={"datasets": [test_set]})
    rounds = rounds_of((Phase("a", 2, "train"), Phase("b", 1, "fuse")))
    found = EvaluationTransform(registry.bind(spec)).plan(rounds)
    assert [(e.round, e.phase_round, e.phase_rounds, e.phase.step) for e in found] == [
        (1, 1, 2, "train"),
        (2, 2, 2, "train"),
        (3, 1, 1, "fuse"),
    ]


def test_phases_of_one_name_are_counted_on() -> None:
    found = rounds_of((Phase("a", 1, "train", everyone=True), Phase("a", 2, "train")))
    assert [(e.phase_round, e.phase_rounds, e.phase.everyone) for e in found] == [
        (1, 3, True),
        (2, 3, False),
        (3, 3, False),
    ]


def test_names_of_exchanges_and_tasks_sort_by_round() -> None:
    exchange = Exchange(TRAIN, 7, 7, 7)
    assert exchange_id(exchange) == "r00007-train"
    assert task_id(exchange, "silo-north/north") == "r00007-train-north"


def test_a_task_belongs_to_one_silo_even_where_one_name_ends_in_another() -> None:
    names = {"r00001-train", "r00001-evaluate"}
    assert is_task_of("r00001-train-north", "a/north", names)
    assert is_task_of("r00001-train-far-north", "a/far-north", names)
    for task in ("r00001-train-far-north", "r00002-train-north", "north", "-north", "r00001-train-north-"):
        assert not is_task_of(task, "a/north", names)
