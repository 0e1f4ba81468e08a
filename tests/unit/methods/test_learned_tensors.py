"""What is no floating-point number has no gradient, no control variate and no moment: it is averaged."""

from __future__ import annotations

import numpy as np

from fedsilo.methods.components.buffers import zero_like
from fedsilo.methods.components.server_optimizers import moments


def test_integers_and_booleans_have_no_variates_and_no_moments() -> None:
    tree = {
        "weight": np.ones(2, np.float32),
        "seen": np.array([2**53 + 1]),
        "flags": np.array([True]),
        "norm.running_var": np.ones(2, np.float32),
    }
    assert list(zero_like(tree)) == list(moments(tree)) == ["weight"]
