"""The local step against numbers that the released FedAvg codes produced; the mean is written out here."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.learning.models import load_tree, to_tree
from fedsilo.learning.training import fit
from tests import reference_numbers
from tests.reference_numbers.networks import client_examples, fedavg_settings, fixture_tree, harness_model

Tree = dict[str, np.ndarray]
CLIENTS = range(4)


def run_round(name: str, npz: Tree, start: Tree, round: int, selected: list[int], uniform: bool) -> Tree:
    model = harness_model(npz)
    total: Tree = {key: np.zeros(value.shape) for key, value in start.items()}
    weights = {k: 1.0 if uniform else float(len(npz[f"y{k}"])) for k in selected}
    for k in selected:
        load_tree(model, start)
        fit(model, client_examples(npz, k), fedavg_settings(name, npz, round))
        for key, value in to_tree(model).items():
            total[key] += weights[k] / sum(weights.values()) * value
    return {key: value.astype(np.float32) for key, value in total.items()}


def assert_close(found: Tree, expected: Tree) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert np.abs(found[key] - value).max() <= 2e-5 * np.abs(value).max(), key


@pytest.mark.parametrize(
    ("name", "prefix", "uniform"),
    [
        ("niid_fedavg", "round{}/", False),
        ("map_fedavg", "round{}/g/", True),
        ("feddynrepo_fedavg_partial", "round{}/sel/", False),
    ],
)
def test_three_rounds_of_the_released_code(name: str, prefix: str, uniform: bool) -> None:
    npz = reference_numbers.load(name)
    tree = fixture_tree(npz, "init/")
    for round in (1, 2, 3):
        selected = [k for k in CLIENTS if "selected" not in npz or npz["selected"][round - 1][k]]
        tree = run_round(name, npz, tree, round, selected, uniform)
        assert_close(tree, fixture_tree(npz, prefix.format(round)))
