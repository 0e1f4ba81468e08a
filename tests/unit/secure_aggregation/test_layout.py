"""All numbers of an update in one vector: sums are sums of updates, within the stated error, and nothing overflows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.errors import MethodError, Problem
from fedsilo.secure_aggregation.clipping import clipped_model
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.parts import INTEGER_BOUND, SAMPLES_BOUND, VALUE_BOUND, Weights
from fedsilo.wire import Contract, ExpectedBlock
from fedsilo.wire.combine import BlockMean, BlockSum, CountedMean, Quotient

CONTRACT = Contract(
    (
        ExpectedBlock("model", "weight", (2, 3), "float32"),
        ExpectedBlock("model", "batches", (), "int64"),
    ),
    ("loss",),
)

Update = tuple[int, dict[str, float], dict[str, np.ndarray]]


def update(rng: np.random.Generator, samples: int) -> Update:
    tensors = {"weight": rng.normal(0, 1, (2, 3)).astype(np.float32), "batches": np.array(samples // 2)}
    return samples, {"loss": float(rng.random())}, tensors


def total(layout: Layout, updates: list[Update]) -> np.ndarray:
    found = np.zeros(layout.size, np.uint64)
    for samples, metrics, tensors in updates:
        found += layout.encode(samples, metrics, tensors, tensors.__getitem__, {})
    return found


@given(
    st.lists(st.integers(1, 1 << 20), min_size=1, max_size=50),
    st.sampled_from(["samples", "uniform"]),
    st.integers(0, 99),
)
def test_a_sum_is_the_mean_of_the_updates(counts: list[int], weights: Weights, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout, updates = Layout(CONTRACT, 50, weights), [update(rng, count) for count in counts]
    found = layout.decode(total(layout, updates), len(updates), {})
    shares = np.array(counts if weights == "samples" else [1] * len(counts), np.float64)
    shares /= shares.sum()
    assert found.samples == sum(counts)
    losses = [metrics["loss"] for _, metrics, _ in updates]
    assert found.metrics["loss"] == pytest.approx(np.average(losses, weights=counts), abs=1e-6)
    mean = sum(
        share * tensors["weight"].astype(np.float64)
        for share, (*_, tensors) in zip(shares, updates, strict=True)
    )
    # Half a step of each silo's number, over the sum of weights, and the rounding of float32.
    np.testing.assert_allclose(found.tensors["weight"], mean, atol=2.0**-19, rtol=2.0**-23)
    exact = sum(share * int(tensors["batches"]) for share, (*_, tensors) in zip(shares, updates, strict=True))
    assert abs(int(found.tensors["batches"]) - exact) < 1 + 1e-6
    assert found.tensors["weight"].dtype == np.float32


WHOLE_NUMBERS = {
    "int32": [-7, 2**31 - 1],
    "int64": [-(2**53) - 1, 2**63 - 1],
    "uint64": [0, 2**64 - 1],
    "bool": [True, False],
}


@st.composite
def models(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Models of any types, with numbers that no fixed point holds."""
    width: Literal[16, 32, 64] = draw(st.sampled_from([16, 32, 64]))
    finite, dtype = st.floats(allow_nan=False, allow_infinity=False, width=width), f"float{width}"
    found = {"x": np.array(draw(st.lists(finite, min_size=1, max_size=5)), dtype)}
    return found | {name: np.array(whole, name) for name, whole in WHOLE_NUMBERS.items()}


@given(
    models(),
    st.lists(st.integers(1, 1 << 20), min_size=1, max_size=9),
    st.sampled_from(["samples", "uniform"]),
)
def test_what_no_silo_changes_is_what_it_was(
    sent: dict[str, np.ndarray], counts: list[int], weights: Weights
) -> None:
    blocks = (ExpectedBlock("model", name, array.shape, array.dtype.name) for name, array in sent.items())
    layout = Layout(Contract(tuple(blocks)), 9, weights)
    vectors = [layout.encode(count, {}, sent, sent.__getitem__, sent) for count in counts]
    found = layout.decode(np.sum(np.stack(vectors), axis=0), len(counts), sent).tensors
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in sent.items()
    }


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(-(2**20), 2**20)), min_size=1, max_size=9),
)
def test_a_mean_of_large_integers_is_exact_and_towards_zero(base: int, silos: list[tuple[int, int]]) -> None:
    """The mean of numbers that changed by little, which no number in float64 tells apart."""
    base = min(max(base, -(2**63) + 2**20), 2**63 - 1 - 2**20)
    layout = Layout(Contract((ExpectedBlock("model", "n", (1,), "int64"),)), 9, "samples")
    sent, total_vector = {"n": np.array([base])}, np.zeros(layout.size, np.uint64)
    for samples, change in silos:
        own = {"n": np.array([base + change])}
        total_vector += layout.encode(samples, {}, own, own.__getitem__, sent)
    examples = sum(samples for samples, _ in silos)
    weighted = sum(samples * (base + change) for samples, change in silos)
    mean = abs(weighted) // examples * (1 if weighted >= 0 else -1)
    assert layout.decode(total_vector, len(silos), sent).tensors["n"].tolist() == [mean]


def test_a_change_beyond_what_64_bits_tell_is_refused() -> None:
    layout = Layout(Contract((ExpectedBlock("model", "n", (1,), "int64"),)), 3, "uniform")
    own, sent = {"n": np.array([2**63 - 1])}, {"n": np.array([-(2**63)])}
    with pytest.raises(Problem, match=r"tensor n: fixed point: number 0 is 1\.8"):
        layout.encode(1, {}, own, own.__getitem__, sent)


def test_a_tensor_that_was_sent_in_another_form_counts_as_it_is() -> None:
    layout, own = Layout(CONTRACT, 3, "uniform"), update(np.random.default_rng(1), 4)[2]
    sent = {"weight": np.ones((2, 3), np.uint16), "batches": np.array(7)}
    found = layout.decode(layout.encode(4, {}, own, own.__getitem__, sent), 1, sent).tensors
    np.testing.assert_allclose(found["weight"], own["weight"], atol=1e-9)
    assert found["batches"] == own["batches"]


def test_the_largest_numbers_of_all_silos_do_not_overflow() -> None:
    for weights in ("samples", "uniform"):
        layout = Layout(CONTRACT, 256, weights)
        tensors = {
            "weight": np.full((2, 3), -VALUE_BOUND, np.float32),
            "batches": np.array(int(INTEGER_BOUND)),
        }
        whole = total(layout, [(int(SAMPLES_BOUND), {"loss": VALUE_BOUND}, tensors)] * 256)
        found = layout.decode(whole, 256, {})
        assert (found.samples, found.metrics["loss"]) == (256 << 24, VALUE_BOUND)
        assert (found.tensors["weight"] == -VALUE_BOUND).all()
        assert found.tensors["batches"] == INTEGER_BOUND


@pytest.mark.parametrize(
    ("samples", "weight", "batches", "message"),
    [
        (1 << 25, 0.0, 0, "samples: fixed point"),
        (3, 2 * VALUE_BOUND, 0, "tensor weight: fixed point: number 0 "),
        (3, np.nan, 0, "tensor weight: fixed point"),
        (3, 0.0, 1 << 60, "tensor batches: fixed point"),
    ],
)
def test_what_is_beyond_its_bound_is_refused(samples: int, weight: float, batches: int, message: str) -> None:
    tensors = {"weight": np.full((2, 3), weight, np.float32), "batches": np.array(batches)}
    with pytest.raises(Problem, match=message):
        Layout(CONTRACT, 4, "uniform").encode(samples, {}, tensors, tensors.__getitem__, {})


def test_a_metric_that_silos_leave_out_or_that_is_too_large_is_in_no_mean() -> None:
    layout = Layout(CONTRACT, 4, "samples")
    tensors = {"weight": np.zeros((2, 3), np.float32), "batches": np.array(0)}
    stated: list[Update] = [(1, {"loss": 2.0}, tensors), (3, {}, tensors), (4, {"loss": 1e30}, tensors)]
    assert layout.decode(total(layout, stated), 3, {}).metrics == {"loss": 2.0}
    assert layout.decode(total(layout, stated[1:]), 2, {}).metrics == {}


def test_silos_without_samples_have_no_weighted_mean() -> None:
    layout = Layout(CONTRACT, 4, "samples")
    tensors = {"weight": np.zeros((2, 3), np.float32), "batches": np.array(0)}
    with pytest.raises(MethodError, match="no silo states any sample"):
        layout.decode(total(layout, [(0, {}, tensors)]), 1, {})


UNWEIGHTED_METRICS = frozenset(["auroc"])
"""Figures in which silos count alike."""


def divided_contract(contract: Contract, over: Quotient) -> Contract:
    """The contract whose model is divided, too."""
    blocks = (replace(b, combine=BlockMean(over)) if b.kind == "model" else b for b in contract.blocks)
    return replace(contract, blocks=tuple(blocks))


DIVIDED_CONTRACT = Contract(
    (ExpectedBlock("model", "weight", (2, 3), "float32"), CONTRACT.blocks[1]), ("loss", "steps")
)


@given(
    st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 10_000)), min_size=1, max_size=50),
    st.sampled_from(["samples", "uniform"]),
    st.sampled_from([None, "uniform"]),
    st.integers(0, 99),
)
def test_a_quotient_is_the_sum_of_what_is_divided(
    silos: list[tuple[int, int]], weights: Weights, own: Literal["uniform"] | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout(divided_contract(DIVIDED_CONTRACT, Quotient("steps", own)), 50, weights)
    updates: list[Update] = []
    for samples, steps in silos:
        _, metrics, tensors = update(rng, samples)
        updates.append((samples, {**metrics, "steps": float(steps)}, tensors))
    found = layout.decode(total(layout, updates), len(updates), {})
    parts = np.array([samples for samples, _ in silos], np.float64)
    if own or weights == "uniform":
        parts = np.ones(len(silos))
    if own is None:
        parts /= parts.sum()
    pull = parts / [steps for _, steps in silos]
    assert found.quotient_weight == pytest.approx(pull.sum(), rel=1e-6, abs=1e-9)
    expected = sum(
        part * tensors["weight"].astype(np.float64) for part, (*_, tensors) in zip(pull, updates, strict=True)
    )
    np.testing.assert_allclose(found.quotients["weight"], expected, atol=2.0**-18, rtol=2.0**-22)
    assert list(found.quotients) == ["weight"], "a counter of batches is not divided"
    assert found.tensors["weight"].shape == (2, 3)


OF_CLASSES = Contract(
    (
        *(
            ExpectedBlock("class_means", f"count/{label}", (), "int64", label, combine=BlockSum())
            for label in (0, 1, 2)
        ),
        *(
            ExpectedBlock(
                "class_means", f"mean/{label}", (2,), "float64", label, combine=CountedMean(f"count/{label}")
            )
            for label in (0, 1, 2)
        ),
        *(
            ExpectedBlock("averaged_gradients", f"gradient/{label}", (2,), "float32", label)
            for label in (0, 1)
        ),
    )
)


def test_a_class_is_averaged_over_the_silos_that_sent_it() -> None:
    one, other = np.array([1.0, 2.0]), np.array([5.0, -2.0])
    updates: list[Update] = [
        (4, {}, {"count/0": np.array(3), "mean/0": one, "gradient/0": one.astype(np.float32)}),
        (9, {}, {"count/0": np.array(1), "mean/0": other, "gradient/0": other.astype(np.float32)}),
        (5, {}, {"count/1": np.array(5), "mean/1": other}),
    ]
    layout = Layout(OF_CLASSES, 4, "samples")
    found = layout.decode(total(layout, updates), 3, {})
    assert list(found.tensors) == ["count/0", "count/1", "count/2", "mean/0", "mean/1", "gradient/0"]
    assert [int(found.tensors[f"count/{label}"]) for label in (0, 1, 2)] == [4, 5, 0]
    np.testing.assert_allclose(found.tensors["mean/0"], [2.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(found.tensors["gradient/0"], [3.0, 0.0], atol=1e-6)


ROWS = (
    ExpectedBlock("confusion", "confusion/0", (2,), "int64", 0, combine=BlockSum()),
    ExpectedBlock("confusion", "confusion/1", (2,), "int64", 1, combine=BlockSum()),
    ExpectedBlock("confusion", "calibration", (2,), "float64", combine=BlockSum()),
)
SCORES = Contract(ROWS, ("accuracy", "auroc"))


def test_counts_are_added_as_they_are_and_figures_of_silos_have_a_spread() -> None:
    bins = np.array([2.5, 0.25])
    updates: list[Update] = [
        (10, {"accuracy": 0.5, "auroc": 0.7}, {"confusion/0": np.array([4, 1 << 30]), "calibration": bins}),
        (30, {"accuracy": 0.9, "auroc": 0.9}, {"confusion/1": np.array([7, 0]), "calibration": bins}),
        (0, {}, {"calibration": 0 * bins}),
    ]
    layout = Layout(replace(SCORES, alike=UNWEIGHTED_METRICS), 4, "samples")
    found = layout.decode(total(layout, updates), 3, {})
    assert found.tensors["confusion/0"].tolist() == [4, 1 << 30]
    assert found.tensors["confusion/1"].tolist() == [7, 0]
    assert found.tensors["calibration"].tolist() == [5.0, 0.5]
    assert found.metrics == {"accuracy": pytest.approx(0.8)}
    assert found.alike["auroc"] == pytest.approx((0.8, 0.1, 2))


def test_scores_of_silos_without_examples_are_none() -> None:
    layout = Layout(SCORES, 4, "samples")
    found = layout.decode(total(layout, [(0, {}, {"calibration": np.zeros(2)})]), 1, {})
    assert (found.samples, found.metrics) == (0, {})


def test_a_mean_without_its_number_of_examples_is_refused() -> None:
    tensors = {"mean/0": np.zeros(2)}
    with pytest.raises(Problem, match="block count/0: counts for mean/0; send both"):
        Layout(OF_CLASSES, 4, "samples").encode(1, {}, tensors, tensors.__getitem__, {})


@given(st.floats(0.1, 10), st.integers(0, 99))
def test_a_clipped_change_has_the_norm_and_its_direction(norm: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sent = {"weight": rng.normal(0, 1, (2, 3)).astype(np.float32), "batches": np.array(7)}
    own = {"weight": sent["weight"] + rng.normal(0, 1, (2, 3)).astype(np.float32), "batches": np.array(9)}
    specs = [block.spec for block in CONTRACT.blocks]
    found = clipped_model(own.__getitem__, specs, sent, norm)
    change, left = own["weight"] - sent["weight"], found("weight") - sent["weight"]
    length = float(np.linalg.norm(change))
    if length <= norm:
        assert (found("weight") == own["weight"]).all() and found("batches") == 9
    else:
        assert np.linalg.norm(left) == pytest.approx(norm, rel=1e-5)
        np.testing.assert_allclose(left, change * (norm / length), atol=1e-5)
        assert found("batches") == 7


def test_a_model_of_another_shape_is_no_change() -> None:
    with pytest.raises(Problem, match="tensor weight: the silo was sent none of this shape"):
        clipped_model(lambda _: np.zeros((2, 3)), [CONTRACT.blocks[0].spec], {"weight": np.zeros(6)}, 1.0)


FIGURES = Contract(
    (*CONTRACT.blocks, ExpectedBlock("confusion", "confusion/0", (2,), "int64", 0, combine=BlockSum())),
    ("accuracy", "auroc", "steps"),
    ranges={"accuracy": (0.0, 1.0), "auroc": (0.0, 1.0)},
)


def honest_total(layout: Layout) -> np.ndarray:
    updates = []
    for samples in (100, 200, 300):
        tensors = {
            "weight": np.full((2, 3), 0.25, np.float32),
            "batches": np.array(7),
            "confusion/0": np.array([samples, 0]),
        }
        updates.append((samples, {"accuracy": 1.0, "auroc": 1.0, "steps": 4.0}, tensors))
    return total(layout, updates)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_a_sum_in_which_masks_are_left_is_refused_wherever_they_are(weights: Weights) -> None:
    """One number of the vector after the other is a random one, or lies just outside of what silos can have."""
    layout = Layout(
        replace(divided_contract(FIGURES, Quotient("steps")), alike=UNWEIGHTED_METRICS), 4, weights
    )
    honest = honest_total(layout)
    assert layout.decode(honest, 3, {}).metrics["accuracy"] == 1.0
    for place in range(layout.size):
        for value in (1 << 63, (1 << 63) - 1, (1 << 64) - (1 << 62) - 1):
            garbled = honest.copy()
            garbled[place] = value
            with pytest.raises(
                Problem, match=r"in the sum over 3 silos, .* must be from .* masked its update"
            ):
                layout.decode(garbled, 3, {})


@given(st.integers(0, 2**32))
def test_a_vector_of_random_numbers_is_no_update(seed: int) -> None:
    layout = Layout(replace(FIGURES, alike=UNWEIGHTED_METRICS), 4, "samples")
    noise = np.random.default_rng(seed).integers(0, 2**64, layout.size, dtype=np.uint64)
    with pytest.raises((Problem, MethodError)):
        layout.decode(honest_total(layout) + noise, 3, {})


def test_a_mean_outside_of_a_metrics_range_is_refused() -> None:
    layout = Layout(replace(FIGURES, alike=UNWEIGHTED_METRICS), 4, "samples")
    tensors = {"weight": np.zeros((2, 3), np.float32), "batches": np.array(0)}
    with pytest.raises(Problem, match=r"the mean of accuracy is 1\.5; must be from 0 to 1"):
        layout.decode(total(layout, [(5, {"accuracy": 1.5}, tensors)] * 3), 3, {})
