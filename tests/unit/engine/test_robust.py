"""Rules in place of the mean: each against its definition, worked out by brute force on small models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedsilo.api.aggregation import RuleSpec
from fedsilo.errors import MethodError, QuorumLost
from fedsilo.methods.method import averaging_of
from fedsilo.methods.reading import Mean
from fedsilo.methods.registry import names
from fedsilo.methods.state import Tree
from fedsilo.transforms.robust_mean import pieces
from fedsilo.transforms.robust_mean.conflicts import check_rule
from fedsilo.transforms.robust_mean.rule import RobustMean
from fedsilo.updates.held import InMemoryUpdates
from tests.federate import bound_method
from tests.unit.methods.harness import accepted_updates

SHAPES = {"w": (3, 4), "b": (3,)}


def trees(count: int, seed: int = 0, spread: float = 1.0) -> list[Tree]:
    rng = np.random.default_rng(seed)
    return [
        {name: rng.normal(0, spread, shape).astype(np.float32) for name, shape in SHAPES.items()}
        for _ in range(count)
    ]


def flat_vector(tree: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([tree[name].ravel() for name in SHAPES]).astype(np.float64)


def updates_of(models: list[Tree], samples: Mapping[str, int] | None = None) -> InMemoryUpdates:
    return accepted_updates({f"s{place}": {"model": tree} for place, tree in enumerate(models)}, samples)


def robust_aggregate(
    models: list[Tree], sent: Tree | None = None, shares: list[float] | None = None, **rule: Any
) -> tuple[np.ndarray, list[float]]:
    """The aggregate as one vector, and what of each silo counted."""
    sent = sent or {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    given_ = shares or [1 / len(models)] * len(models)
    robust = RobustMean(RuleSpec.model_validate(rule), sent)
    found = robust.mean(
        updates_of(models), "model", {f"s{place}": share for place, share in enumerate(given_)}
    )
    return flat_vector(found), list(robust.kept.values())


@pytest.mark.parametrize("count", [3, 4, 7, 10])
def test_the_median_of_each_coordinate(count: int) -> None:
    models = trees(count)
    found, kept = robust_aggregate(models, name="median")
    assert found == pytest.approx(np.median([flat_vector(tree) for tree in models], axis=0), abs=1e-6)
    assert sum(kept) == pytest.approx(1 if count % 2 else 2, abs=1e-3)


@pytest.mark.parametrize(("count", "byzantine"), [(3, 1), (5, 2), (10, 3)])
def test_the_mean_of_each_coordinate_without_its_extremes(count: int, byzantine: int) -> None:
    models = trees(count)
    found, kept = robust_aggregate(models, name="trimmed-mean", byzantine=byzantine)
    ordered = np.sort([flat_vector(tree) for tree in models], axis=0)
    assert found == pytest.approx(ordered[byzantine : count - byzantine].mean(axis=0), abs=1e-6)
    assert sum(kept) == pytest.approx(count - 2 * byzantine, abs=1e-3)


@pytest.mark.parametrize(("count", "byzantine", "selected"), [(5, 1, 1), (7, 2, 3), (9, 2, 5)])
def test_krum_chooses_whose_neighbours_are_nearest(count: int, byzantine: int, selected: int) -> None:
    models = trees(count, seed=3)
    vectors = [flat_vector(tree) for tree in models]
    scores = []
    for one in range(count):
        near = sorted(np.sum((vectors[one] - vectors[other]) ** 2) for other in range(count) if other != one)
        scores.append(sum(near[: count - byzantine - 2]))
    best = np.argsort(scores)[:selected]
    rule = {"name": "krum"} if selected == 1 else {"name": "multi-krum", "selected": selected}
    found, kept = robust_aggregate(models, byzantine=byzantine, **rule)
    assert [place for place, part in enumerate(kept) if part] == sorted(best)
    assert found == pytest.approx(np.mean([vectors[place] for place in best], axis=0), abs=1e-6)


def test_multi_krum_averages_all_but_the_byzantine_and_two_more() -> None:
    _, kept = robust_aggregate(trees(9), name="multi-krum", byzantine=2)
    assert sum(kept) == 9 - 2 - 2


@pytest.mark.parametrize("shares", [None, [0.1, 0.2, 0.3, 0.25, 0.15]])
def test_the_point_with_the_least_sum_of_distances(shares: list[float] | None) -> None:
    models = trees(5, seed=5)
    vectors, weights = [flat_vector(tree) for tree in models], shares or [0.2] * 5
    found, _ = robust_aggregate(models, shares=shares, name="geometric-median")

    def distances(point: np.ndarray) -> float:
        return float(sum(w * np.linalg.norm(point - x) for w, x in zip(weights, vectors, strict=True)))

    best = minimize(distances, np.mean(vectors, axis=0), method="BFGS", options={"gtol": 1e-10})
    assert distances(found) == pytest.approx(best.fun, rel=1e-6)
    assert found == pytest.approx(best.x, abs=2e-3)


def test_a_geometric_median_that_is_one_of_the_models() -> None:
    """More than half of the weight at one point: the median is that point (Lopuhaa and Rousseeuw, 1991)."""
    (same, *others) = trees(3, seed=6)
    found, kept = robust_aggregate([same, same, same, *others], name="geometric-median")
    assert found == pytest.approx(flat_vector(same), abs=1e-3)
    assert max(kept[3:]) < 0.01


def test_changes_are_clipped_to_the_norm() -> None:
    sent, models = trees(1, seed=9)[0], trees(4, seed=7)
    shares = [0.1, 0.2, 0.3, 0.4]
    changes = [flat_vector(tree) - flat_vector(sent) for tree in models]
    norm = float(np.median([np.linalg.norm(change) for change in changes]))
    factors = [min(1.0, norm / float(np.linalg.norm(change))) for change in changes]
    expected = flat_vector(sent) + sum(
        p * factor * change for p, factor, change in zip(shares, factors, changes, strict=True)
    )
    found, kept = robust_aggregate(models, sent, shares, name="norm-clipping", norm=norm)
    assert found == pytest.approx(expected, abs=1e-5)
    assert kept == pytest.approx(factors, abs=1e-4)


RULES: list[dict[str, Any]] = [
    {"name": "median"},
    {"name": "trimmed-mean", "byzantine": 2},
    {"name": "krum", "byzantine": 2},
    {"name": "multi-krum", "byzantine": 2},
    {"name": "geometric-median"},
    {"name": "norm-clipping", "norm": 5.0},
]
IDS = [rule["name"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_two_of_nine_cannot_move_the_model_far(rule: dict[str, Any]) -> None:
    models = trees(9, spread=0.1)
    honest = np.mean([flat_vector(tree) for tree in models[:7]], axis=0)
    hostile = [{name: np.full(shape, 1e6, np.float32) for name, shape in SHAPES.items()} for _ in range(2)]
    found, kept = robust_aggregate([*models[:7], *hostile], **rule)
    assert np.linalg.norm(found - honest) < 2.0
    assert max(kept[7:]) < 0.01 or rule["name"] == "median"


@pytest.mark.parametrize("rule", RULES, ids=IDS)
@given(value=st.floats(-100, 100, width=32), count=st.integers(7, 12))
def test_equal_models_are_the_aggregate(rule: dict[str, Any], value: float, count: int) -> None:
    model = {name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()}
    found, _ = robust_aggregate([model] * count, sent=model, **rule)
    assert found == pytest.approx(flat_vector(model), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("rule", RULES, ids=IDS)
@given(order=st.permutations(range(9)))
def test_the_order_of_the_silos_does_not_matter(rule: dict[str, Any], order: list[int]) -> None:
    models = trees(9, seed=11)
    found, kept = robust_aggregate(models, **rule)
    other, moved = robust_aggregate([models[place] for place in order], **rule)
    assert other == pytest.approx(found, abs=1e-4)
    assert moved == pytest.approx([kept[place] for place in order], abs=1e-3)


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_pieces_do_not_show(rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by pieces of all silos' models: one number at a time gives the same aggregate."""
    whole, kept = robust_aggregate(trees(9), **rule)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8 * 9)
    found, again = robust_aggregate(trees(9), **rule)
    assert found == pytest.approx(whole, abs=1e-6)
    assert again == pytest.approx(kept, abs=1e-4)


def test_counts_of_batches_stay_whole_numbers() -> None:
    models = [{"w": np.full((3,), float(place), np.float32), "n": np.array(place + 3)} for place in range(5)]
    sent = {"w": np.zeros(3, np.float32), "n": np.array(1)}
    for rule in ({"name": "median"}, {"name": "geometric-median"}, {"name": "norm-clipping", "norm": 0.1}):
        robust = RobustMean(RuleSpec.model_validate(rule), sent)
        found = robust.mean(updates_of(models), "model", {f"s{place}": 0.2 for place in range(5)})
        assert found["n"].dtype.kind == "i", rule
        assert found["w"].dtype == np.float32


def test_too_few_answers_end_the_job_with_their_number() -> None:
    with pytest.raises(
        QuorumLost, match=r"4 silos answered, and krum needs 5; raise spec\.participation\.minSilos"
    ):
        robust_aggregate(trees(4), name="krum", byzantine=1)


def test_silos_that_send_other_tensors_are_named() -> None:
    models = trees(3)
    del models[1]["b"]
    with pytest.raises(MethodError, match="tensor b: silo s1 sent another shape than s0, or only one"):
        robust_aggregate(models, name="median")


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ({"name": "krum"}, "is missing, which krum needs"),
        ({"name": "median", "byzantine": 1}, "has no meaning for median"),
        ({"name": "norm-clipping"}, "is missing, which norm-clipping needs"),
        ({"name": "norm-clipping", "norm": 0}, "greater than 0"),
        ({"name": "krum", "byzantine": 1, "selected": 2}, "has no meaning for krum"),
        ({"name": "trimmed-mean", "byzantine": 0}, "greater than or equal to 1"),
        ({"name": "bulyan"}, "norm-clipping"),
    ],
)
def test_fields_that_do_not_belong_together_are_refused(rule: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        RuleSpec.model_validate(rule)


def faults(method: str, silos: int, rule: dict[str, Any], **sections: Any) -> str:
    job = bound_method(
        method, silos, aggregation={"rule": rule} | sections.pop("aggregation", {}), **sections
    )
    return "\n".join(f"{path}: {problem}; {remedy}" for path, _, problem, remedy in check_rule(job))


def test_a_rule_needs_enough_answers_and_a_method_that_averages_models() -> None:
    krum = {"name": "krum", "byzantine": 1}
    assert faults("fedavg", 5, krum) == ""
    assert "needs 5 answers in a round, and 4 are enough" in faults("fedavg", 4, krum)
    assert "and 3 are enough" in faults("fedavg", 6, krum, participation={"minSilos": 3})
    assert "has no meaning for method fedconcat" in faults("fedconcat", 5, krum)
    assert "silos count alike" in faults("fedavg", 5, krum, aggregation={"weights": "samples"})
    many = {"name": "multi-krum", "byzantine": 1, "selected": 3}
    assert "is more than the 2 models that 5 answers leave" in faults("fedavg", 5, many)
    assert "is for 256 silos at most" in faults("fedavg", 257, {"name": "median"})


WEIGHING: list[dict[str, Any]] = [{"name": "geometric-median"}, {"name": "norm-clipping", "norm": 1.0}]


@pytest.mark.parametrize("rule", WEIGHING, ids=["geometric-median", "norm-clipping"])
@pytest.mark.parametrize("weights", [None, "samples"])
@pytest.mark.parametrize("secure", [None, True])
def test_a_rule_in_which_a_stated_sample_count_could_outvote_all_others_asks_for_uniform_weights(
    rule: dict[str, Any], weights: str | None, secure: bool | None
) -> None:
    found = faults("fedavg", 5, rule, aggregation={"weights": weights, "secure": secure})
    assert found.startswith("spec.aggregation.weights: ")
    assert "states enough of them outvotes all others" in found
    assert found.endswith("; write uniform")
    assert faults("fedavg", 5, rule, aggregation={"weights": "uniform", "secure": secure}) == ""


@pytest.mark.parametrize("rule", WEIGHING, ids=["geometric-median", "norm-clipping"])
def test_a_rule_asks_for_nothing_where_the_method_counts_silos_alike_by_itself(rule: dict[str, Any]) -> None:
    alike = [
        name
        for name in names()
        if (job := bound_method(name)).reads is Mean and averaging_of(job) == "uniform"
    ]
    assert alike
    for method in alike:
        assert faults(method, 5, rule) == "", method


def test_a_rule_that_counts_silos_alike_asks_for_no_weights() -> None:
    for rule in (
        {"name": "median"},
        {"name": "trimmed-mean", "byzantine": 1},
        {"name": "krum", "byzantine": 1},
    ):
        assert faults("fedavg", 5, rule) == "", rule


def test_rules_are_for_methods_whose_aggregate_is_a_mean_of_models() -> None:
    able = {name for name in names() if bound_method(name).reads is Mean}
    assert able >= {"fedavg", "fedavgm", "fedopt", "fedprox", "fedrs", "fedlc", "mixup", "fed-focal"}
    assert not able & {
        "fedconcat",
        "ccvr",
        "creff",
        "scaffold",
        "feddyn",
        "fednova",
        "fedproto",
        "local",
        "map",
    }


def test_subsets_that_are_alike_attract_krum() -> None:
    """Krum's limit is known: f + 2 silos that agree with each other are chosen, which `byzantine` rules out."""
    models = trees(7, seed=2)
    twin = {name: np.full(shape, 3, np.float32) for name, shape in SHAPES.items()}
    _, kept = robust_aggregate([*models[:3], twin, twin, twin, twin], name="krum", byzantine=2)
    assert kept[3:] == [1, 0, 0, 0]
