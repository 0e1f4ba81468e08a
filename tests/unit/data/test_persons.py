"""Whose each example is: every loader that can say it, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsilo.data.catalogue import check_dataset, names_persons
from fedsilo.data.loaders import load
from fedsilo.data.persons import checked_persons
from fedsilo.data.schema import Schema
from fedsilo.data.split import split_persons
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import data, dataset
from tests.unit.data.tables import csv, table_refusal
from tests.unit.data.test_bad_data import refusal

TABLE = "age,patient,income,colour,default\n31,ann,1,red,0\n42,7,800,green,1\n27, ann ,950,red,2\n"
IMAGES = np.zeros((3, 2, 2), np.float32)
LABELS = np.array([0, 1, 0])


def arrays(root: Path, persons: object, **config: Any) -> Any:
    np.savez(root / "a.npz", images=IMAGES, labels=LABELS, patients=persons)  # type: ignore[arg-type]
    return dataset("npz", path="a.npz", person="patients", **config)


def test_a_column_of_a_table_names_the_person_and_is_no_feature(tmp_path: Path) -> None:
    found = csv(tmp_path, TABLE, person="patient")
    assert found.persons is not None
    assert found.persons.tolist() == ["ann", "7", "ann"]
    assert found.features.shape == (3, 4)
    assert "patient" not in repr(found.schema)
    plain = csv(tmp_path)
    assert plain.persons is None
    assert plain.schema == found.schema != Schema()


def test_a_table_with_chosen_columns_is_read_alike(tmp_path: Path) -> None:
    found = csv(tmp_path, TABLE, person="patient", columns=["colour", "income", "age"])
    assert found.persons is not None
    assert found.take(np.array([1, 0])).persons.tolist() == ["7", "ann"]  # type: ignore[union-attr]


def test_a_parquet_file_names_persons(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {"age": [1.0, 2.0, 3.0], "patient": [7, 9, 7], "default": [0, 1, 0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    wanted = dataset("parquet", path="a.parquet", target="default", columns=["age"], person="patient")
    found = load(wanted, data(1, classes=2), root=tmp_path)
    assert found.persons is not None
    assert found.persons.tolist() == ["7", "9", "7"]


@pytest.mark.parametrize("persons", [np.array([3, 4, 3]), np.array(["3", " 4", "3"])])
def test_an_array_names_the_person(tmp_path: Path, persons: np.ndarray) -> None:
    found = load(arrays(tmp_path, persons), data(1, 2, 2, classes=2), root=tmp_path)
    assert found.persons is not None
    assert found.persons.tolist() == ["3", "4", "3"]
    np.save(tmp_path / "images.npy", IMAGES)
    np.save(tmp_path / "labels.npy", LABELS)
    np.save(tmp_path / "patients.npy", persons)
    files = dataset("npy", features="images.npy", labels="labels.npy", person="patients.npy")
    found = load(files, data(1, 2, 2, classes=2), root=tmp_path)
    assert found.persons is not None
    assert found.persons.tolist() == ["3", "4", "3"]


def test_the_path_of_an_image_names_the_person_whatever_its_class(tmp_path: Path) -> None:
    for name in ("cat/P1/a.png", "cat/P2/a.png", "dog/P1/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(tmp_path / name)
    wanted, job = dataset("imagefolder", path=".", person="^(P[0-9]+)/"), data(1, 2, 2, classes=2)
    found = load(wanted, job, root=tmp_path)
    assert found.persons is not None
    assert found.persons.tolist() == ["P1", "P2", "P1"]
    Image.new("L", (2, 2)).save(tmp_path / "dog" / "c.png")
    assert "'c.png': config.person (^(P[0-9]+)/) finds nobody in it; rename the file" in refusal(
        wanted, job, tmp_path
    )


def test_a_function_of_python_names_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("ward")
    module.read = lambda: (IMAGES, LABELS, None, ["a", "b", "a"])  # type: ignore[attr-defined]
    module.short = lambda: (IMAGES, LABELS, None, ["a", "b"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ward", module)
    found = load(dataset("python:ward:read"), data(1, 2, 2, classes=2), root=tmp_path)
    assert found.persons is not None
    assert found.persons.tolist() == ["a", "b", "a"]
    assert "persons have shape (2,), but there are 3 examples" in refusal(
        dataset("python:ward:short"), data(1, 2, 2, classes=2), tmp_path
    )


def test_a_row_of_nobody_is_refused_with_its_place(tmp_path: Path) -> None:
    problem = table_refusal(tmp_path, TABLE.replace("42,7,", "42,,"), person="patient")
    assert "'a.csv' row 2, column 'patient': the person is missing; mend or remove the row" in problem
    assert "has no column 'ward'" in table_refusal(tmp_path, TABLE, person="ward")
    absent = refusal(dataset("npz", path="a.npz", person="ward"), data(1, 2, 2, classes=2), tmp_path)
    assert "is not a file" in absent
    arrays(tmp_path, LABELS)
    absent = refusal(dataset("npz", path="a.npz", person="ward"), data(1, 2, 2, classes=2), tmp_path)
    assert "config.person: 'ward' is not an array" in absent


@pytest.mark.parametrize(
    ("persons", "problem"),
    [
        ([1.0, float("nan")], "dtype float64; give a whole number or a text for each example"),
        (["a", None], "dtype object"),
        (["a", " "], "item 1: the person is missing"),
        ([1, 2, 3], r"shape \(3,\), but there are 2 examples"),
        ([[1, 2], [3]], "are not an array"),
    ],
)
def test_what_names_nobody_is_refused(persons: object, problem: str) -> None:
    with pytest.raises(DataInvalid, match=problem):
        checked_persons(persons, 2)


def test_a_configuration_that_cannot_name_persons_is_refused() -> None:
    def problems(loader: str, **config: Any) -> list[tuple[str, str]]:
        return [(path, problem) for path, _, problem, _ in check_dataset(dataset(loader, **config))]

    assert problems("csv", path="a", target="t", person="t") == [
        ("config.person", "is also a feature or the target")
    ]
    assert problems("csv", path="a", target="t", columns=["c"], person="c")[0][0] == "config.person"
    assert problems("imagefolder", path="a", person="P") == [("config.person", "has 0 groups and needs one")]
    assert "is no regular expression" in problems("imagefolder", path="a", person="(")[0][1]
    assert problems("sklearn:digits", person="p")[0][0] == "config.person"


def test_it_is_known_without_data_whether_persons_are_named() -> None:
    assert names_persons(dataset("csv", path="a", target="t", person="p")) is True
    assert names_persons(dataset("csv", path="a", target="t")) is False
    assert names_persons(dataset("sklearn:digits")) is False
    assert names_persons(dataset("python:ward:read", person="p")) is None


def test_a_person_is_in_one_part_of_the_data_whoever_else_is_there() -> None:
    persons = np.array([f"p{number % 400}" for number in range(1000)])
    train, validation = split_persons(persons, 0.2, seed=7)
    assert sorted([*train, *validation]) == list(range(1000))
    assert not set(persons[train]) & set(persons[validation])
    assert len(set(persons[validation])) == pytest.approx(80, abs=30)
    fewer = persons[persons != "p3"]
    assert set(fewer[split_persons(fewer, 0.2, seed=7)[1]]) == set(persons[validation]) - {"p3"}
    assert set(persons[split_persons(persons, 0.2, seed=8)[1]]) != set(persons[validation])
    assert len(split_persons(persons, 0, seed=7)[1]) == 0
