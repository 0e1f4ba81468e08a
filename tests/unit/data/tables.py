"""A table of four columns, and what its loader makes of it or says against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsilo.data.loaders import Arrays, load
from tests.unit.data.specs import data, dataset
from tests.unit.data.test_bad_data import refusal

ROWS = "age,income,colour,default\n31,1200.5,red,0\n42, 800 ,green,1\n27,950,red,2\n"
COLOURS = {"colour": ["green", "red"]}


def csv(root: Path, text: str = ROWS, name: str = "a.csv", **config: Any) -> Arrays:
    (root / name).write_text(text)
    settings = {"path": name, "target": "default", "categories": COLOURS} | config
    return load(dataset("csv", **settings), data(4, classes=3), root=root)


def table_refusal(root: Path, text: str, features: int = 4, **config: Any) -> str:
    (root / "a.csv").write_text(text)
    settings = {"path": "a.csv", "target": "default", "categories": COLOURS} | config
    return refusal(dataset("csv", **settings), data(features, classes=3), root)
