"""What docs/robust-aggregation.md promises of each rule, for as many hostile silos as it names, of any magnitude.

The bounds follow from the honest models and the number of silos, and from nothing that a hostile silo sends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.api.aggregation import RuleSpec
from fedsilo.methods.state import Tree
from fedsilo.transforms.robust_mean.rule import RobustMean
from tests.unit.methods.harness import accepted_updates

MODEL_NUMBERS = 12
NORM = 0.5
WEIGHING_RULES = ("krum", "multi-krum", "geometric-median", "norm-clipping")
RULES = ("median", "trimmed-mean", *WEIGHING_RULES)
MAGNITUDES = (1e8, 3e38)
DISHONEST_COUNT = 2**40
"""A whole number that no honest silo sends."""

PLANS = ("together", "opposed", "one number", "scattered", "beside an honest silo", "far and near")
"""What hostile silos agree on."""


def rule_of(name: str, hostile: int) -> dict[str, Any]:
    """The rule against so many silos."""
    needed: dict[str, dict[str, Any]] = {
        "norm-clipping": {"norm": NORM},
        "trimmed-mean": {"byzantine": hostile},
        "krum": {"byzantine": hostile},
        "multi-krum": {"byzantine": hostile},
    }
    return {"name": name, **needed.get(name, {})}


def most_hostile(name: str, silos: int) -> int:
    """Silos that may send anything, as the page has it."""
    return {
        "norm-clipping": silos - 1,
        "krum": (silos - 3) // 2,
        "multi-krum": (silos - 3) // 2,
    }.get(name, (silos - 1) // 2)


def cases(name: str) -> Iterator[tuple[int, int]]:
    """Numbers of silos, and of hostile ones among them, for which the rule promises something."""
    for silos in range(3, 12):
        yield from ((silos, hostile) for hostile in range(1, most_hostile(name, silos) + 1))


def attackers(plan: str, hostile: int, magnitude: float, honest: np.ndarray) -> np.ndarray:
    """Models of the hostile silos, (hostile, SIZE)."""
    far = np.full((hostile, MODEL_NUMBERS), magnitude)
    if plan == "opposed":
        far[1::2] *= -1
    elif plan == "one number":
        far = np.repeat(honest[:1], hostile, axis=0)
        far[:, MODEL_NUMBERS // 2] = magnitude
    elif plan == "scattered":
        far *= np.sign(np.random.default_rng(hostile).normal(size=far.shape))
    elif plan == "beside an honest silo":
        far = honest[:1] + 1e-3 * np.arange(1, hostile + 1)[:, None]
        far[-1] = magnitude
    elif plan == "far and near":
        far *= (1e-6 ** np.arange(hostile))[:, None]
    return far


def aggregate(
    models: np.ndarray, rule: dict[str, Any], dtype: str = "float32", counts: Sequence[int] = ()
) -> tuple[Tree, np.ndarray]:
    """What the rule makes of (silos, SIZE) models whose change is from zeros, and what it says that it kept.

    :param counts: of batches, one of each silo, where the model counts them.
    """
    silos = [f"s{place}" for place in range(len(models))]
    trees: list[Tree] = [
        {"w": row[:8].astype(dtype).reshape(2, 4), "b": row[8:].astype(dtype)} for row in models
    ]
    for tree, count in zip(trees, counts, strict=False):
        tree["batches"] = np.array(count)
    sent = {name: np.zeros_like(array) for name, array in trees[0].items()}
    robust = RobustMean(RuleSpec.model_validate(rule), sent)
    updates = accepted_updates({silo: {"model": tree} for silo, tree in zip(silos, trees, strict=True)})
    tree = robust.mean(updates, "model", dict.fromkeys(silos, 1 / len(silos)))
    assert json.loads(json.dumps(robust.kept, allow_nan=False)) == robust.kept
    return tree, np.array([robust.kept[silo] for silo in silos])


def flat_vector(tree: Tree) -> np.ndarray:
    """Its numbers, without the counter."""
    return np.concatenate([tree["w"].ravel(), tree["b"]]).astype(np.float64)


def farthest_distance(name: str, silos: int, hostile: int, honest: np.ndarray) -> float:
    """How far from the honest models' mean the aggregate may be, which hostile silos cannot change."""
    radius = float(np.linalg.norm(honest - honest.mean(axis=0), axis=1).max())
    diameter = float(max(np.linalg.norm(one - other) for one in honest for other in honest))
    if name == "geometric-median":
        return 2 * (silos - hostile) / (silos - 2 * hostile) * radius
    if "krum" in name:
        return radius + diameter * math.sqrt((silos - hostile - 2) / (silos - 2 * hostile - 1))
    # Each number is among the honest ones.
    return float(np.linalg.norm(honest.max(axis=0) - honest.min(axis=0)))


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("name", [name for name in RULES if name != "norm-clipping"])
def test_the_aggregate_stays_with_the_honest_models(name: str, magnitude: float) -> None:
    """From every number of silos, up to eleven, and with every number of hostile ones that the page names."""
    for silos, hostile in cases(name):
        honest = (
            np.random.default_rng(silos).normal(0.3, 0.1, (silos - hostile, MODEL_NUMBERS)).astype(np.float32)
        )
        for plan in PLANS:
            models = np.vstack([attackers(plan, hostile, magnitude, honest), honest])
            found = flat_vector(aggregate(models, rule_of(name, hostile))[0])
            distance = np.linalg.norm(found - honest.mean(axis=0))
            assert distance <= 1.0001 * farthest_distance(name, silos, hostile, honest), (
                silos,
                hostile,
                plan,
            )


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_a_clipped_silo_pushes_by_no_more_than_the_norm(magnitude: float) -> None:
    for silos, hostile in cases("norm-clipping"):
        honest = (
            np.random.default_rng(silos).normal(0, 0.1, (silos - hostile, MODEL_NUMBERS)).astype(np.float32)
        )
        lengths = np.linalg.norm(honest.astype(np.float64), axis=1)
        own = (honest * np.minimum(1, NORM / lengths)[:, None]).sum(axis=0) / silos
        for plan in PLANS:
            models = np.vstack([attackers(plan, hostile, magnitude, honest), honest])
            found = flat_vector(aggregate(models, rule_of("norm-clipping", hostile))[0])
            assert np.linalg.norm(found - own) <= 1.0001 * NORM * hostile / silos, (silos, hostile, plan)


@pytest.mark.parametrize("norm", [1e-5, 3e-6])
def test_the_norm_holds_where_a_silo_s_factor_is_less_than_single_precision_has(norm: float) -> None:
    """A factor of 1e-45 or less is 0, or too large, in single precision."""
    models = np.full((4, MODEL_NUMBERS), 3e38)
    found = flat_vector(aggregate(models, {"name": "norm-clipping", "norm": norm})[0])
    assert np.linalg.norm(found) == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("name", [name for name in RULES if name != "norm-clipping"])
@settings(max_examples=40)
@given(
    silos=st.integers(3, 11),
    data=st.data(),
    spread=st.sampled_from([0.0, 1e-6, 1.0, 1e3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_hostile_models_move_the_aggregate_away(
    name: str, silos: int, data: st.DataObject, spread: float, seed: int
) -> None:
    silos = max(silos, 5) if "krum" in name else silos
    hostile = data.draw(st.integers(1, most_hostile(name, silos)))
    number = st.floats(width=32, allow_nan=False, allow_infinity=False)
    sent = data.draw(st.lists(st.tuples(number, number), min_size=hostile, max_size=hostile))
    rng = np.random.default_rng(seed)
    honest = (1 + spread * rng.normal(size=(silos - hostile, MODEL_NUMBERS))).astype(np.float32)
    bad = np.array([[one] * (MODEL_NUMBERS // 2) + [other] * (MODEL_NUMBERS // 2) for one, other in sent])
    models = np.vstack([bad, honest])
    rng.shuffle(models)
    found = flat_vector(aggregate(models, rule_of(name, hostile))[0])
    rounding = 1e-6 * float(np.linalg.norm(honest[0]))
    distance = np.linalg.norm(found - honest.mean(axis=0))
    assert distance <= 1.001 * farthest_distance(name, silos, hostile, honest) + rounding


@pytest.mark.parametrize("name", RULES)
def test_numbers_in_double_precision_do_not_overflow(name: str) -> None:
    honest = np.random.default_rng(0).normal(0.3, 0.1, (5, MODEL_NUMBERS))
    for plan in PLANS:
        models = np.vstack([attackers(plan, 2, 1.7e308, honest), honest])
        found = flat_vector(aggregate(models, rule_of(name, 2), "float64")[0])
        bound = NORM if name == "norm-clipping" else farthest_distance(name, 7, 2, honest)
        assert np.linalg.norm(found - honest.mean(axis=0)) <= 2 * bound, plan


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("count", [DISHONEST_COUNT, -DISHONEST_COUNT, 2**63 - 1, -(2**63)])
def test_whole_numbers_stay_among_the_honest_ones(name: str, count: int) -> None:
    """Counters, such as those of batch normalisation, are in no distance: a silo whose model is like all others may
    send any.
    """
    models = np.random.default_rng(1).normal(0, 0.01, (7, MODEL_NUMBERS))
    tree, _ = aggregate(models, rule_of(name, 2), counts=[count, count, 5, 6, 7, 8, 9])
    assert tree["batches"].dtype == np.int64
    assert 5 <= int(tree["batches"]) <= 9


# --- What is kept.


@pytest.mark.parametrize("name", WEIGHING_RULES)
@pytest.mark.parametrize("magnitude", [1.0, 1e8, 3e38])
def test_what_is_kept_is_the_weight_that_a_model_had(name: str, magnitude: float) -> None:
    """Every silo has a number of its own, which shows its weight in the aggregate."""
    silos, hostile = 7, 2
    models = np.zeros((silos, MODEL_NUMBERS))
    models[np.arange(silos), np.arange(silos)] = [magnitude, magnitude, 0.6, 0.3, 0.3, 0.4, 0.5]
    tree, kept = aggregate(models, rule_of(name, hostile))
    weights = flat_vector(tree)[:silos] / models.max(axis=1)
    share = kept.sum() if "krum" in name else silos
    if name == "geometric-median":
        weights = np.minimum(weights, 1 / silos)
    assert weights * share == pytest.approx(kept, rel=1e-3)


@pytest.mark.parametrize("name", ["geometric-median", "norm-clipping"])
def test_only_a_model_without_any_weight_is_left_out(name: str) -> None:
    """0 says left out: a silo that is far away still pulls, though its weight is small."""
    honest = np.random.default_rng(2).normal(0.3, 0.1, (4, MODEL_NUMBERS)).astype(np.float32)
    models = np.vstack([np.full((1, MODEL_NUMBERS), 3e38), honest])
    alone, _ = aggregate(honest, rule_of(name, 1))
    found, kept = aggregate(models, rule_of(name, 1))
    assert np.abs(flat_vector(found) - flat_vector(alone)).max() > 1e-3
    assert 0 < kept[0] < 1e-30


NUMBERS = st.lists(st.sampled_from([-3e38, -2.0, 0.0, 0.5, 1.0, 3e38]), min_size=3, max_size=9)


@given(numbers=NUMBERS, data=st.data())
def test_the_trimmed_mean_is_the_mean_weighted_by_what_is_kept(
    numbers: list[float], data: st.DataObject
) -> None:
    """Also where several silos send the same number: they share what counts of it, whatever their order is."""
    left_out = data.draw(st.integers(1, (len(numbers) - 1) // 2))
    sent = np.array(numbers, np.float32).astype(np.float64)
    models = np.repeat(sent[:, None], MODEL_NUMBERS, axis=1)
    tree, kept = aggregate(models, {"name": "trimmed-mean", "byzantine": left_out})
    counted = len(numbers) - 2 * left_out
    assert kept.sum() == pytest.approx(counted, rel=1e-3)
    assert len(set(zip(numbers, kept, strict=True))) == len(set(numbers))
    assert flat_vector(tree) == pytest.approx(
        np.full(MODEL_NUMBERS, kept @ sent / counted), rel=1e-2, abs=1e-3 * np.abs(sent).max()
    )


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
def test_what_is_kept_of_equal_models_is_equal(name: str) -> None:
    _, kept = aggregate(np.full((5, MODEL_NUMBERS), 0.25), rule_of(name, 1))
    assert len(set(kept)) == 1


@pytest.mark.parametrize("name", RULES)
def test_models_that_are_partly_equal_are_kept_alike_in_every_order(name: str) -> None:
    models = np.random.default_rng(3).normal(0, 0.1, (5, MODEL_NUMBERS))
    models[:, ::2] = np.array([0.0, 0.0, 0.0, 0.1, 0.1])[:, None]
    models[0, 1:] = 3e38
    _, kept = aggregate(models, rule_of(name, 1))
    for order in list(permutations(range(5)))[::17]:
        _, moved = aggregate(models[list(order)], rule_of(name, 1))
        assert moved == pytest.approx(kept[list(order)], rel=1e-3)
