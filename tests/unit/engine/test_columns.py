"""Thirty and more arrangements of columns over four silos and a test set: none is trained on with shifted columns.

Each column holds a number of its own, whatever it is called and wherever it stands, so that a shift shows.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load
from fedsilo.engine.schemata import TEST_SET, SchemaStore
from fedsilo.errors import DataInvalid

SILOS = ("north", "south", "east", "west")
TEST = "test"
CONTENT: Mapping[str, Sequence[object]] = {
    "age": (1, 1),
    "dose": (2, 2),
    "pulse": (3, 3),
    "sex": ("f", "m"),
    "ill": (0, 1),
}
"""Column -> its value in each of two rows."""

FEATURES = [[1, 2, 3, 1, 0], [1, 2, 3, 0, 1]]


@dataclass(frozen=True)
class Table:
    """The table of one owner.

    :param columns: names in the file -> what they really hold.
    :param config: of the loader, beside the file.
    """

    columns: Mapping[str, str] = field(default_factory=lambda: {name: name for name in CONTENT})
    config: Mapping[str, Any] = field(default_factory=dict)


def renamed_table(**names: str) -> Table:
    """The right table, with other names for some columns."""
    config: dict[str, Any] = {"target": names["ill"]} if "ill" in names else {}
    if "sex" in names:
        config["categories"] = {names["sex"]: ["f", "m"]}
    return Table({names.get(name, name): name for name in CONTENT}, config)


def ordered_table(*names: str, **config: Any) -> Table:
    """A table with these columns."""
    return Table({name: name for name in names}, config)


def categories(**lists: Sequence[str]) -> Table:
    """The right table, with other categories."""
    return Table(config={"categories": {"sex": ["f", "m"], **lists}})


SHUFFLED_TABLE = ordered_table("dose", "age", "pulse", "sex", "ill")
LISTED_TABLE = ordered_table("ill", "sex", "dose", "pulse", "age", columns=["age", "dose", "pulse", "sex"])
SWAPPED_TABLE = ordered_table("age", "dose", "sex", "pulse", "ill")
TWINS = Table({"age": "age", "Age": "dose", "pulse": "pulse", "sex": "sex", "ill": "ill"})
TURNED_TWINS = Table({"Age": "age", "age": "dose", "pulse": "pulse", "sex": "sex", "ill": "ill"})
ANOTHER_ORDER = "the list of column names is in another order"

ARRANGEMENTS: list[tuple[str, str | None, dict[str, Table], Sequence[str]]] = [
    # what, rule, tables that are not right, what is said: nothing where all is admitted
    ("all right", None, {}, []),
    ("another order", None, {"east": SHUFFLED_TABLE}, [f"silo east: {ANOTHER_ORDER}"]),
    ("another order, mapped", "map", {"east": SHUFFLED_TABLE}, [f"silo east: {ANOTHER_ORDER}"]),
    ("another order of the test set", None, {TEST: SHUFFLED_TABLE}, [f"{TEST_SET}: {ANOTHER_ORDER}"]),
    ("another order everywhere but once", None, dict.fromkeys(("north", "south", "east", TEST), SHUFFLED_TABLE),
     [f"silo west: {ANOTHER_ORDER}"]),
    ("a category before a number", None, {"west": SWAPPED_TABLE}, [f"silo west: {ANOTHER_ORDER}"]),
    ("another order in the file alone", None, {"west": LISTED_TABLE}, []),
    ("another order in the test set's file alone", None, {TEST: LISTED_TABLE}, []),
    ("case", None, {"north": renamed_table(age="Age")}, ["silo north: column 'Age'", "did you mean 'age'?"]),
    ("case, mapped", "map", {"north": renamed_table(age="Age", dose="DOSE")}, []),
    ("case and order, mapped", "map", {"north": Table({"Dose": "dose", "Age": "age", **SWAPPED_TABLE.columns})},
     ["north: "]),
    ("case of the test set", None, {TEST: renamed_table(pulse="Pulse")}, [f"{TEST_SET}: column 'Pulse'"]),
    ("case of the test set, mapped", "map", {TEST: renamed_table(pulse="Pulse")}, []),
    ("white space", None, {"south": renamed_table(dose=" dose")}, []),
    ("a typing error", None, {"east": renamed_table(age="aeg")}, ["silo east: column 'aeg'", "did you mean 'age'?"]),
    ("a typing error, mapped", "map", {"east": renamed_table(age="aeg")}, ["silo east: column 'aeg'"]),
    ("a typing error in the test set", None, {TEST: renamed_table(age="aeg")}, [f"{TEST_SET}: column 'aeg'"]),
    ("two typing errors", None, {"east": renamed_table(age="aeg"), "west": renamed_table(dose="dosis")},
     ["silo east: column 'aeg'", "silo west: column 'dosis'"]),
    ("another column", None, {"south": renamed_table(dose="weight")},
     ["silo south: column 'weight' is in these data alone", "column 'dose' is lacking"]),
    ("names exchanged", None, {"south": renamed_table(dose="age", age="dose")}, [f"silo south: {ANOTHER_ORDER}"]),
    ("a column lacking", None, {"north": ordered_table("age", "pulse", "sex", "ill")}, ["north: ", "has 4 features"]),
    ("a column lacking that is listed", None,
     {"north": ordered_table("age", "pulse", "sex", "ill", columns=["age", "dose", "pulse", "sex"])},
     ["north: ", "'dose'"]),
    ("an additional column", None, {"east": Table({**{name: name for name in CONTENT}, "note": "age"})},
     ["east: ", "has 6 features"]),
    ("an additional column, not listed", None,
     {"east": Table({"note": "dose", **{name: name for name in CONTENT}},
                    {"columns": ["age", "dose", "pulse", "sex"]})}, []),
    ("a number as a category", None, {"west": categories(pulse=["3"])},
     ["silo west: column 'pulse' is of type category"]),
    ("a number as a category, mapped", "map", {"west": categories(pulse=["3"])},
     ["silo west: column 'pulse' is of type"]),
    ("categories in another order", None, {"west": categories(sex=["m", "f"])},
     ["silo west: column 'sex': the list of category names is in another order"]),
    ("categories in another order, mapped", "map", {"west": categories(sex=["m", "f"])},
     ["silo west: column 'sex': the list of category names is in another order"]),
    ("categories of the test set in another order", None, {TEST: categories(sex=["m", "f"])},
     [f"{TEST_SET}: column 'sex': the list of category names"]),
    ("a category that no row has", None, {"west": categories(sex=["f", "w"])}, ["west: ", "'m' is not one of its"]),
    ("an additional category", None, {"west": categories(sex=["f", "m", "x"])}, ["west: ", "has 6 features"]),
    ("no target", None, {"south": ordered_table("age", "dose", "pulse", "sex")}, ["south: ", "'ill'"]),
    ("no target in the test set", None, {TEST: ordered_table("age", "dose", "pulse", "sex")}, [f"{TEST}: ", "'ill'"]),
    ("another target", None, {"south": renamed_table(ill="sick")}, ["silo south: target 'sick'"]),
    ("another case of the target, mapped", "map", {"south": renamed_table(ill="ILL")}, []),
    ("two names that differ in case", "map", dict.fromkeys((*SILOS, TEST), TWINS), []),
    ("two names that differ in case, exchanged", "map",
     {**dict.fromkeys((*SILOS, TEST), TWINS), "east": TURNED_TWINS}, [f"silo east: {ANOTHER_ORDER}"]),
    ("every fault at once", None,
     {"north": renamed_table(age="aeg"), "south": SHUFFLED_TABLE, "east": ordered_table("age", "dose", "pulse", "sex")},
     ["silo north: column 'aeg'", f"silo south: {ANOTHER_ORDER}", "east: ", "'ill'"]),
]  # fmt: skip


def write_table(root: Path, owner: str, table: Table) -> DatasetSpec:
    """Write the owner's table as a CSV file; its dataset."""
    with (root / f"{owner}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows(zip(*(CONTENT[real] for real in table.columns.values()), strict=True))
    config = {"path": f"{owner}.csv", "target": "ill", "categories": {"sex": ["f", "m"]}, **table.config}
    return DatasetSpec(name="visits", loader="csv", config=config)


@pytest.mark.parametrize(
    ("rule", "tables", "said"), [case[1:] for case in ARRANGEMENTS], ids=[case[0] for case in ARRANGEMENTS]
)
def test_no_arrangement_is_trained_on_with_shifted_columns(
    tmp_path: Path, rule: str | None, tables: dict[str, Table], said: Sequence[str]
) -> None:
    document = {"dataset": "visits", "classes": 2, "inputShape": [5], "onSchemaMismatch": rule}
    job = DataSpec.model_validate(document)
    found, problems = {}, []
    for owner in (*SILOS, TEST):
        try:
            dataset = write_table(tmp_path, owner, tables.get(owner, Table()))
            found[owner] = load(dataset, job, root=tmp_path)
        except DataInvalid as error:
            problems.append(f"{owner}: {error}")
    test_set = found[TEST].schema if TEST in found else None
    schemata = SchemaStore(tmp_path / "schemata.json", job, test_set)
    for silo in SILOS:
        if silo in found:
            schemata.announce(silo, found[silo].schema)
    failure = schemata.failure()
    problems += [] if failure is None else [str(failure)]
    for part in said:
        assert part in " ".join(problems)
    assert bool(problems) == bool(said), problems
    if failure is None:
        for owner, arrays in found.items():
            assert np.asarray(arrays.features[:]).tolist() == FEATURES, owner


def test_there_are_thirty_of_them() -> None:
    wrong = [case for case in ARRANGEMENTS if case[2]]
    assert len({case[0] for case in wrong}) == len(wrong) >= 30
