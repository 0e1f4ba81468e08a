"""How many samples of each class each silo has: the table by which people judge a partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def count_matrix(labels: np.ndarray, parts: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Samples per silo and class, shape (silos, classes), int64.

    :param labels: class of every sample of the whole dataset, shape (N,)
    :param parts: for each silo the indices of its samples
    """
    rows = [np.bincount(labels[part], minlength=classes) for part in parts]
    return np.stack(rows).astype(np.int64)


def count_table(counts: np.ndarray, names: Sequence[str] | None = None) -> str:
    """A count matrix as aligned plain text with row and column sums; zeros are shown as dots.

    :param counts: samples per silo and class, shape (silos, classes)
    :param names: one name per silo; part numbers when absent
    """
    silos, classes = counts.shape
    rows = [["silo", *(str(c) for c in range(classes)), "all"]]
    for name, row in zip(names or [str(k) for k in range(silos)], counts, strict=True):
        rows.append([name, *(str(n) if n else "." for n in row), str(row.sum())])
    rows.append(["all", *(str(n) for n in counts.sum(axis=0)), str(counts.sum())])
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )
