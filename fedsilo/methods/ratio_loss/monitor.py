"""Ratios of classes, of the changes that the examples of one class each make in the same weights.

How places are chosen is read from the released code, which marks where no other class's change is larger in size than
0.8 of the largest. There are no reference numbers of that: those that it computed begin with places that are given, and
cover the ratios there, the weights that follow, and the loss.
"""

from __future__ import annotations

import numpy as np

CLEAR_SHARE = 0.8
"""A change is clear where no other is larger than this part of it, as in the released code."""

LARGEST_RATIO = 5000.0
"""Largest ratio of a class, as in the released code."""

RATIO_WITHOUT_CHANGE = 10.0
"""Ratio of a class whose change is clear nowhere, as in the released code."""


class Monitor:
    """The changes seen so far, of which four arrays are kept, however many classes there are.

    :param shape: of the weights.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._classes: list[int] = []
        self._largest, self._whose = np.full(shape, -np.inf), np.full(shape, -1)
        self._others, self._sum = np.zeros(shape), np.zeros(shape)

    def add(self, label: int, change: np.ndarray) -> None:
        """Note how the examples of a class change the weights."""
        change = change.astype(np.float64)
        self._classes.append(label)
        self._sum += change
        leads = change > self._largest
        former = np.where(np.isfinite(self._largest), self._largest, 0)
        self._others = np.maximum(self._others, np.abs(np.where(leads, former, change)))
        self._whose[leads] = label
        self._largest = np.maximum(self._largest, change)

    def ratios(self) -> dict[int, float]:
        """Class -> ratio of its changes to those of the other classes.

        Empty where there is only one class, which can be compared with nothing.
        """
        if len(self._classes) < 2:
            return {}
        clear = (self._largest > 0) & (self._others <= CLEAR_SHARE * self._largest)
        means = (self._sum - self._largest) / (len(self._classes) - 1)
        places = {label: clear & (self._whose == label) for label in self._classes}
        return {label: ratio(self._largest[at], means[at]) for label, at in places.items()}


def ratio(own: np.ndarray, others: np.ndarray) -> float:
    """|sum of own| / |sum of others|, at most 5000.

    :param own: changes of a class, where they are clearly the largest; `others`: means of the other classes' there.
    """
    if not own.size:
        return RATIO_WITHOUT_CHANGE
    total = abs(float(others.sum()))
    return min(abs(float(own.sum())) / total, LARGEST_RATIO) if total else LARGEST_RATIO
