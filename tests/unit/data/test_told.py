"""What a silo tells of data that it cannot use: the place and the remedy, and no value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.data.arrays import distinct_names
from fedsilo.data.loaders import load
from fedsilo.data.numbering import number_classes
from fedsilo.errors import SEE_LOG, DataInvalid, FedsiloError, quoted_value
from fedsilo.readiness.announce import unreadable_findings
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
    "no row of names": (
        "Jane Doe,1970-01-01,1\nJohn Roe,1971-02-02,0\n",
        {},
        "Jane",
        f"'a.csv' has no column 'default' (it has {SEE_LOG}); {SEE_LOG}",
    ),
    "no row of names, and one value that is nearly the column": (
        "Jane Doe,defaults\nJohn Roe,healthy\n",
        {},
        "defaults",
        f"'a.csv' has no column 'default' (it has {SEE_LOG}); {SEE_LOG}",
    ),
    "no row of names, another delimiter": (
        "Jane Doe;1\nJohn Roe;0\n",
        {},
        "Jane",
        f"'a.csv' has no column 'default' (it has {SEE_LOG}); set config.delimiter to ';'",
    ),
    "no row of names, a value twice": (
        "4711,4711,default\n31,32,0\n",
        {},
        "4711",
        f"'a.csv' has two columns {SEE_LOG}; rename one",
    ),
    "columns that no schema can hold": (
        "Jane\x07Doe,default\n31,0\n",
        {},
        "Jane",
        f"'a.csv': the name of the column {SEE_LOG} ",
    ),
    "more columns than the job has features": (
        "Jane Doe,1970-01-01,default\n31,2,0\n",
        {},
        "Jane",
        f"the table has 2 features ({SEE_LOG}), but data.inputShape of the job is [1]",
    ),
}


@pytest.mark.parametrize("fault", CSV)
def test_a_value_of_a_table_is_logged_and_not_told(fault: str, tmp_path: Path) -> None:
    text, config, value, told = CSV[fault]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataInvalid) as caught:
        load(dataset("csv", path="a.csv", target="default", **config), data(1, classes=3), root=tmp_path)
    assert value in str(caught.value)
    assert value not in caught.value.redacted_text
    assert told in caught.value.redacted_text
    (finding,) = unreadable_findings(caught.value)
    assert finding.message is not None
    assert value not in finding.message


NAMES: dict[str, tuple[list[str], dict[str, str], bool, str]] = {
    "another number": (["Jane Doe"], {}, False, f"there are 1 classes ({SEE_LOG}), but data.classes"),
    "one twice": (["Jane Doe", "Jane Doe"], {}, True, f"classes {SEE_LOG}: two have the same name"),
    "one that is none": (["Jane\x07 Doe"], {}, True, f"class {SEE_LOG} "),
    "no such alias": (["Jane Doe"], {"ill": "b"}, True, f"'ill' is no class of these data; {SEE_LOG}"),
}


@pytest.mark.parametrize("fault", NAMES)
def test_names_of_classes_that_are_found_in_the_data_are_logged_and_not_told(fault: str) -> None:
    names, aliases, ordered, told = NAMES[fault]
    with pytest.raises(DataInvalid, match="Jane") as caught:
        number_classes(names, data(1, classes=3), aliases, ordered=ordered)
    assert "Jane" not in caught.value.redacted_text
    assert told in caught.value.redacted_text


def test_a_name_that_a_list_of_classes_has_twice_is_logged_and_not_told() -> None:
    with pytest.raises(DataInvalid, match="'Jane Doe' is there twice") as caught:
        distinct_names(["Jane Doe", "Jane Doe"], "config.classes")
    assert caught.value.redacted_text.startswith(f"config.classes: {SEE_LOG} is there twice")


@pytest.mark.parametrize("entry", ["empty", "link"])
def test_folders_of_classes_are_logged_and_not_told(entry: str, tmp_path: Path) -> None:
    (tmp_path / "John Roe").mkdir()
    folder = tmp_path / "Jane Doe"
    if entry == "empty":
        folder.mkdir()
    else:
        folder.symlink_to("nowhere")
    with pytest.raises(DataInvalid, match="class folder 'Jane Doe' is") as caught:
        load(dataset("imagefolder", path="."), data(1, 2, 2, classes=2), root=tmp_path)
    assert f"class folder {SEE_LOG} is" in caught.value.redacted_text


def test_arrays_that_a_file_has_are_logged_and_not_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", jane_doe=np.zeros((3, 2), np.float32))
    with pytest.raises(DataInvalid, match="use one of jane_doe") as caught:
        load(dataset("npz", path="a.npz"), data(2, classes=3), root=tmp_path)
    assert (
        f"'images' is not an array of {str(tmp_path / 'a.npz')!r}; use one of {SEE_LOG}"
        in caught.value.redacted_text
    )


def test_a_wrong_target_is_logged_and_not_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 2), np.float32), labels=np.array([0.0, 4711.25, 1.0]))
    with pytest.raises(DataInvalid) as caught:
        load(dataset("npz", path="a.npz"), data(2, classes=3), root=tmp_path)
    assert "label 4711.25 is not an integer" in str(caught.value)
    assert (
        f"item 1: label {SEE_LOG} is not an integer; number classes from 0 to 2" in caught.value.redacted_text
    )


def test_a_quoted_value_does_not_end_its_quotation() -> None:
    error = FedsiloError(
        f"row 3: {quoted_value(quoted_value('a') + 'Jane' + quoted_value('b'))} is wrong; mend it"
    )
    assert str(error) == "row 3: aJaneb is wrong; mend it"
    assert error.redacted_text == f"row 3: {SEE_LOG} is wrong; mend it"


def test_an_error_that_repeats_another_keeps_what_is_not_told() -> None:
    inner = DataInvalid(f"row 3: {quoted_value('Jane' + chr(10) + 'Doe')} is wrong")
    outer = DataInvalid(f"dataset 'a': {inner.marked_text}")
    assert (str(outer), outer.redacted_text) == (
        "dataset 'a': row 3: Jane\nDoe is wrong",
        f"dataset 'a': row 3: {SEE_LOG} is wrong",
    )
    assert json.loads(json.dumps(inner.marked_text)) == inner.marked_text, (
        "from one process of a training to the next"
    )
