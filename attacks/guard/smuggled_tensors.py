"""Tensors beside the contract: more of them, fewer, 10,000 of them, of another shape and dtype, with NaN and infinity,
cut, empty.

By: a hostile trainer, which writes into the drop.

Must: refused with the code of the contract; nothing leaves.
"""

from __future__ import annotations

import os

import numpy as np

from attacks.live_guard import LiveGuard
from tests.integration.service.scripted import TREE

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    weights = TREE["classifier.weight"]
    not_finite = weights.copy()
    not_finite[1, 2] = np.nan
    infinite = weights.copy()
    infinite[0, 0] = -np.inf
    many = {f"t{number}": np.zeros(1, np.float32) for number in range(10_000)}
    for tree, words in (
        ({**TREE, "patients": np.arange(4, dtype=np.float32)}, "unexpected-block"),
        ({**TREE, **many}, "unexpected-block"),
        ({"encoder.weight": TREE["encoder.weight"]}, "missing-block"),
        ({**TREE, "classifier.weight": np.ones((6, 3), np.float32)}, "wrong-shape"),
        ({**TREE, "classifier.weight": np.ones((3, 6), np.float64)}, "wrong-dtype"),
        ({**TREE, "classifier.weight": not_finite}, "not-finite"),
        ({**TREE, "classifier.weight": infinite}, "not-finite"),
    ):
        task = target.name()
        target.aggregator.drop(task, tree)
        target.expect_drop_refused(task, words)
    for size in (0, 100):
        task = target.name()
        os.truncate(target.aggregator.drop(task) / "tensors", size)
        target.expect_drop_refused(task, "malformed")
