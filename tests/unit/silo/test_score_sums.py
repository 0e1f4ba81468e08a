"""What a silo releases of the sums that scores follow from, whatever its trainer says."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.errors import PolicyRefused
from fedsilo.silo.reply import require_enough_examples
from fedsilo.wire import ExpectedBlock


def require(name: str, values: object, per_class: int = 4, per_feature: int = 3) -> None:
    kind = "feature_statistics" if name.startswith("targets/") else "confusion"
    tensors = {"targets/count": np.array([5, 0]), name: np.array(values)}
    label = int(name.rpartition("/")[2]) if name.startswith("confusion/") else None
    array = tensors[name]
    block = ExpectedBlock(kind, name, array.shape, array.dtype.name, label)
    require_enough_examples([block], tensors.__getitem__, per_class, per_feature)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("confusion/1", [3, 1]),
        ("calibration", [[4.0, 2.0, 1.0], [0.0, 0.0, 0.0]]),
        ("targets/count", [3, 0]),
        ("targets/mean", [0.5, 0.0]),
        ("targets/m2", [1.5, 0.0]),
    ],
)
def test_enough_examples_may_leave_and_none(name: str, values: object) -> None:
    require(name, values)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "confusion/1",
            [2, 1],
            "block confusion/1: 3 is fewer examples than the 4 that minSamplesPerClass asks",
        ),
        ("confusion/1", [0, 0], "block confusion/1: 0 is fewer examples than the 4"),
        ("calibration", [[4.0, 2, 1], [3.0, 2, 1]], "block calibration: 3 is fewer examples than the 4"),
        ("calibration", [[4.0, 2, 1], [0.0, 2, 1]], "block calibration: 0 is fewer examples than the 4"),
        (
            "targets/count",
            [2, 0],
            "block targets/count: 2 is fewer examples than the 3 that minSamplesPerFeature",
        ),
        ("targets/mean", [0.5, 7.0], "block targets/mean: 7 is the statistic of no example; the method must"),
        ("targets/m2", [0.5, 1e-9], "block targets/m2: 1e-09 is the statistic of no example"),
    ],
)
def test_what_few_examples_say_is_refused(name: str, values: object, message: str) -> None:
    with pytest.raises(PolicyRefused, match=message):
        require(name, values)
