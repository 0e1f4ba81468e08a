"""Write the tables of this example: scikit-learn's breast cancer data, in four clinics and a public test set.

Two clinics screen, and see few malignant tumours; one treats, and sees few others. Their files differ in what real
files differ in: the order of the columns, the separator, the words for the classes, and values that were not measured.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path

from sklearn.datasets import load_breast_cancer

DATA_DIR = Path(__file__).parent / "data"

TARGET = "diagnosis"
MALIGNANT_COUNTS = {"north": 6, "east": 10, "south": 80, "west": 40}
"""Malignant tumours of each clinic."""

ROWS = 90
"""Tumours of each clinic."""


def write(path: Path, columns: Sequence[str], rows: Sequence[dict[str, str]], delimiter: str = ",") -> None:
    """Write one table as a file of delimited values."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, delimiter=delimiter)
        table.writeheader()
        table.writerows(rows)


def main() -> None:
    """Write `data/`, the same at every call."""
    found = load_breast_cancer()
    features = [name.replace(" ", "_") for name in found.feature_names]
    rows = [
        {**dict(zip(features, map(repr, map(float, values)), strict=True)), TARGET: found.target_names[label]}
        for values, label in zip(found.data, found.target, strict=True)
    ]
    draw = random.Random(1)
    draw.shuffle(rows)
    DATA_DIR.mkdir(exist_ok=True)
    write(DATA_DIR / "test.csv", [*features, TARGET], rows[:169])
    held = {name: [row for row in rows[169:] if row[TARGET] == name] for name in found.target_names}
    for site, malignant in MALIGNANT_COUNTS.items():
        own = [dict(held["malignant"].pop()) for _ in range(malignant)]
        own += [dict(held["benign"].pop()) for _ in range(ROWS - malignant)]
        columns, delimiter = [*features, TARGET], ","
        if site == "north":
            columns = [TARGET, *sorted(features)]
        if site == "east":
            delimiter = ";"
        if site == "south":
            for row in own:
                row[TARGET] = {"malignant": "M", "benign": "B"}[row[TARGET]]
        if site == "west":
            for row in draw.sample(own, 20):
                row["worst_area"] = ""
        write(DATA_DIR / f"{site}.csv", columns, own, delimiter)


if __name__ == "__main__":
    main()
