"""What a silo tells of data that it cannot use: the place and the remedy, and no value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.data.loaders import load
from fedsilo.errors import SEE_LOG, DataInvalid, FedsiloError, quoted
from fedsilo.readiness.announce import unreadable
from tests.unit.data.specs import data, dataset

CSV: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a text in a column of numbers": (
        "age,default\n31,0\nJane Doe,1\n",
        {},
        "Jane",
        f"dataset 'scans': 'a.csv' row 2, column 'age': {SEE_LOG} is not a number; list its values",
    ),
    "an unknown category": (
        "age,default\nred,0\nJane Doe,1\n",
        {"categories": {"age": ["red"]}},
        "Jane",
        f"'a.csv' row 2, column 'age': {SEE_LOG} is not one of its categories; {SEE_LOG}",
    ),
    "a target that is no class": (
        "age,default\n31,0\n32,4711\n",
        {},
        "4711",
        f"item 1: label {SEE_LOG} is not a class of the job",
    ),
}


@pytest.mark.parametrize("fault", CSV)
def test_a_value_of_a_table_is_logged_and_not_told(fault: str, tmp_path: Path) -> None:
    text, config, value, told = CSV[fault]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataInvalid) as caught:
        load(dataset("csv", path="a.csv", target="default", **config), data(1, classes=3), root=tmp_path)
    assert value in str(caught.value)
    assert value not in caught.value.told
    assert told in caught.value.told
    (finding,) = unreadable(caught.value)
    assert finding.message is not None
    assert value not in finding.message


def test_a_wrong_target_is_logged_and_not_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 2), np.float32), labels=np.array([0.0, 4711.25, 1.0]))
    with pytest.raises(DataInvalid) as caught:
        load(dataset("npz", path="a.npz"), data(2, classes=3), root=tmp_path)
    assert "label 4711.25 is not an integer" in str(caught.value)
    assert f"item 1: label {SEE_LOG} is not an integer; number classes from 0 to 2" in caught.value.told


def test_a_quoted_value_does_not_end_its_quotation() -> None:
    error = FedsiloError(f"row 3: {quoted(quoted('a') + 'Jane' + quoted('b'))} is wrong; mend it")
    assert str(error) == "row 3: aJaneb is wrong; mend it"
    assert error.told == f"row 3: {SEE_LOG} is wrong; mend it"


def test_an_error_that_repeats_another_keeps_what_is_not_told() -> None:
    inner = DataInvalid(f"row 3: {quoted('Jane' + chr(10) + 'Doe')} is wrong")
    outer = DataInvalid(f"dataset 'a': {inner.marked}")
    assert (str(outer), outer.told) == (
        "dataset 'a': row 3: Jane\nDoe is wrong",
        f"dataset 'a': row 3: {SEE_LOG} is wrong",
    )
    assert json.loads(json.dumps(inner.marked)) == inner.marked, "from one process of a training to the next"
