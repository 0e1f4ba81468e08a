"""What a server half reads of several silos' blocks is the same whether it may see silos or only their sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.errors import MethodError
from fedsilo.methods.contract import contract_of
from fedsilo.methods.reading import Sums
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload, Step
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.simulation.silos import SimulatedUpdate
from fedsilo.transforms.secure_sum.summed import sum_plaintext
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.wire import ModelSignature, TensorSpec
from fedsilo.wire.combine import BlockSum, CountedMean, SquaredDeviations

CLASSES = 3
SIGNATURE = ModelSignature((TensorSpec("w", (2, 2), "float32"),), CLASSES, 2)

MODEL = Payload("model")
OF_CLASSES = (
    Payload("class_means", "count", (), "int64", per_class=True, combine=BlockSum()),
    Payload("class_means", "by/count", (2,), "float64", per_class=True, combine=CountedMean("count")),
    Payload("class_means", "alike", (2,), per_class=True),
    Payload("class_means", "added", (2,), "float64", per_class=True, combine=BlockSum()),
)
OF_FEATURES = (
    Payload("feature_statistics", "n", (2,), "int64", combine=BlockSum()),
    Payload("feature_statistics", "mean", (2,), "float64", combine=CountedMean("n")),
    Payload("feature_statistics", "m2", (2,), "float64", combine=SquaredDeviations("mean")),
    Payload("feature_statistics", "plain", (2,), "float64"),
)
STEP = Step((MODEL, *OF_CLASSES, *OF_FEATURES))
CONTRACT = contract_of(STEP, SIGNATURE, {"classes": CLASSES, "feature": 2})


def update(rng: np.random.Generator) -> SimulatedUpdate:
    """Update of a silo that has some of the classes, one of them perhaps without an example."""
    classes: Tree = {}
    for label in range(CLASSES):
        if rng.random() < 0.6:
            classes[f"count/{label}"] = np.array(rng.integers(0, 9))
            classes[f"by/count/{label}"] = rng.normal(size=2)
            classes[f"alike/{label}"] = rng.normal(size=2).astype(np.float32)
        if rng.random() < 0.6:
            classes[f"added/{label}"] = rng.normal(size=2)
    features: Tree = {
        "n": rng.integers(0, 9, size=2),
        "mean": rng.normal(size=2),
        "m2": rng.uniform(0, 4, size=2),
        "plain": rng.normal(size=2),
    }
    features["m2"][features["n"] == 0] = 0
    model: Tree = {"w": rng.normal(size=(2, 2)).astype(np.float32)}
    blocks = {"model": model, "class_means": classes, "feature_statistics": features}
    return SimulatedUpdate(int(rng.integers(1, 50)), {}, blocks, None)


@given(st.integers(1, 6), st.integers(0, 10**6), st.sampled_from(["samples", "uniform"]))
def test_a_plain_job_and_a_sum_read_the_same(silos: int, seed: int, rule: str) -> None:
    rng = np.random.default_rng(seed)
    plain = InMemoryUpdates({f"silos/s{k}": update(rng) for k in range(silos)})
    layout = Layout(CONTRACT, silos, "samples" if rule == "samples" else "uniform")
    summed = sum_plaintext(plain, layout, None, {})
    for kind in ("model", "class_means", "feature_statistics"):
        here, there = (Sums(updates, rule, STEP.payloads).combine(kind) for updates in (plain, summed))
        assert all(not there[name].any() for name in there.keys() - here.keys()), "a sum of nothing is zeros"
        for name, tensor in here.items():
            assert tensor.dtype == there[name].dtype, name
            np.testing.assert_allclose(tensor, there[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_deviations_about_a_large_mean_keep_their_digits() -> None:
    values = 1e6 + np.random.default_rng(0).normal(size=(4, 10, 2))
    plain = InMemoryUpdates(
        {
            f"silos/s{k}": SimulatedUpdate(10, {}, {"feature_statistics": moments(part)}, None)
            for k, part in enumerate(values)
        }
    )
    found = Sums(plain, "samples", STEP.payloads).combine("feature_statistics")
    together = values.reshape(-1, 2)
    np.testing.assert_allclose(found["m2"], ((together - together.mean(0)) ** 2).sum(0), rtol=1e-8)


def moments(values: np.ndarray) -> Tree:
    mean = values.mean(0)
    count = np.full(2, len(values))
    return {"n": count, "mean": mean, "m2": ((values - mean) ** 2).sum(0), "plain": mean}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("class_means", "mean of class_means: payload count is of classes; read combine('class_means')"),
        (
            "feature_statistics",
            "mean of feature_statistics: payload n is combined as BlockSum; read combine('feature_statistics')",
        ),
        (
            "class_counts",
            "no payload of the step is of kind 'class_counts'; read one of model, class_means, feature_statistics",
        ),
    ],
)
def test_a_mean_that_no_payload_declares_says_what_to_read(kind: str, message: str) -> None:
    updates = InMemoryUpdates({"silos/s0": update(np.random.default_rng(0))})
    with pytest.raises(MethodError) as refused:
        Sums(updates, "samples", STEP.payloads).mean(kind)
    assert str(refused.value) == message


def test_a_mean_without_its_counts_names_the_silo() -> None:
    sent = update(np.random.default_rng(1))
    del sent.blocks["feature_statistics"]["n"]
    with pytest.raises(MethodError, match=r"silo silos/s0: block n: is missing, which counts for mean"):
        Sums(InMemoryUpdates({"silos/s0": sent}), "samples", STEP.payloads).combine("feature_statistics")
