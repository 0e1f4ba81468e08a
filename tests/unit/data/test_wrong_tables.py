"""Tables, files and configurations that are refused: each with its place, value and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsilo.data.catalogue import check_dataset
from fedsilo.process import TEMPORARY_BYTES
from tests.unit.data.specs import data, dataset
from tests.unit.data.tables import ROWS, csv, table_refusal
from tests.unit.data.test_bad_data import refusal


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        (
            "age,colour,default\n1,red,0\n2,red\n",
            {},
            "'a.csv' row 2 has 2 values, but there are 3 columns; mend the row, or correct config.delimiter",
        ),
        ("age,colour,default\n1,red,0,9\n", {}, "'a.csv' row 1 has 4 values, but there are 3 columns"),
        (
            "age,colour,defalt\n1,red,0\n",
            {},
            "'a.csv' has no column 'default' (it has age, colour, defalt); did you mean defalt?",
        ),
        ("age,colour,default\n1,red,0\n", {"columns": ["agee", "colour"]}, "has no column 'agee'"),
        (
            "age,default\n1,0\n",
            {},
            "'a.csv' has no column 'colour' (it has age, default); use one of age, default",
        ),
        (
            "age,colour,default\n1,red,0\n2,rad,0\n",
            {},
            "'a.csv' row 2, column 'colour': 'rad' is not one of its categories; did you mean red?",
        ),
        (
            "age,colour,default\n1,red,0\n2,,0\n",
            {},
            "row 2, column 'colour': the value is missing; add null to config.categories of the column",
        ),
        (
            "age,colour,default\n1,red,0\n\n,red,0\n",
            {},
            "row 2, column 'age': the value is missing; set config.fill to a number",
        ),
        (
            "age,colour,default\n1,red,0\n1e3,red,0\n1.200,5,0\n",
            {"columns": ["age"], "categories": {}},
            "the table has 1 feature (age), but data.inputShape of the job is [4]; correct config.columns",
        ),
        (
            "age,colour,default\n1,red,0\nold,red,0\n",
            {},
            "row 2, column 'age': 'old' is not a number; list its values in config.categories, add",
        ),
        ("age,colour,default\n1e39,red,0\n", {}, "row 1, column 'age': 1e+39 is not a finite float32; mend"),
        ("age,colour,default\ninf,red,0\n", {}, "row 1, column 'age': inf is not a finite float32; mend"),
        ("age,colour,default\n1,red,\n", {}, "row 1, column 'default': the target is missing; mend"),
        ("age,colour,default\n1,red,nan\n", {}, "row 1, column 'default': the target is missing; mend"),
        (
            "age,colour,default\n1,red,benign\n",
            {},
            "row 1, column 'default': 'benign' is not a number; give spec.data.classes of the job as a list",
        ),
        ("age,age,default\n1,2,0\n", {}, "'a.csv' has two columns 'age'; rename one"),
        ("", {}, "'a.csv' cannot be read (Empty CSV file); write the file anew"),
        ("age,colour,default\n", {}, "but data.inputShape of the job is [4]"),
        ("age,colour,default\n", {"columns": ["age"], "categories": {}}, "data.inputShape of the job is [4]"),
        ("age,colour,default\n1,red,3\n", {"categories": {"colour": ["a", "b", "red"]}}, "item 0: label 3"),
    ],
)
def test_a_wrong_table(tmp_path: Path, text: str, config: dict[str, Any], message: str) -> None:
    assert message in table_refusal(tmp_path, text, **config)


def test_a_table_without_rows(tmp_path: Path) -> None:
    text = "age,colour,default\n"
    assert "there is not a single sample" in table_refusal(tmp_path, text, features=3)


@pytest.mark.parametrize(
    ("content", "config", "message"),
    [
        (
            b"age,default\n1,0\n2,caf\xe9\n",
            {},
            "'a.csv' line 3 is not text in utf-8; set config.encoding to the file's, such as latin-1",
        ),
        (b"gr\xf6sse,default\n1,0\n", {}, "'a.csv' line 1 is not text in utf-8"),
        (b"a,b\n1,0\n", {"encoding": "utf-16"}, "is not text in utf-16; set config.encoding"),
    ],
)
def test_another_encoding(tmp_path: Path, content: bytes, config: dict[str, Any], message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    spec = dataset("csv", path="a.csv", target="default", **config)
    assert message in refusal(spec, data(1, classes=3), tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"age,default\n1,0\n"], ids=["empty", "cut", "text"])
def test_no_parquet_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    spec = dataset("parquet", path="a.parquet", target="default")
    assert "'a.parquet' cannot be read as Parquet (" in refusal(spec, data(1, classes=3), tmp_path)


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"x": np.random.RandomState(0).rand(5000), "y": np.zeros(5000)}),
        tmp_path / "a.parquet",
        write_page_checksum=True,
    )
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[100:9000] = bytes(8900)
    (tmp_path / "a.parquet").write_bytes(content)
    spec = dataset("parquet", path="a.parquet", target="y")
    assert "'a.parquet' cannot be read as Parquet (" in refusal(spec, data(1, classes=3), tmp_path)


def test_a_column_that_holds_no_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1], [2]], "y": [0, 1]}), tmp_path / "a.parquet")
    spec = dataset("parquet", path="a.parquet", target="y")
    message = refusal(spec, data(1, classes=3), tmp_path)
    assert "row 1, column 'x': values of type list<" in message
    category = dataset("parquet", path="a.parquet", target="y", categories={"x": ["1"]})
    assert "are no categories; leave the column out" in refusal(category, data(1, classes=3), tmp_path)


def test_text_of_a_parquet_file_that_is_not_utf_8(tmp_path: Path) -> None:
    text = pa.array([b"red", b"gr\xf2n"], pa.binary()).view(pa.string())
    for stored in (text, pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), text)):
        pq.write_table(pa.table({"x": stored, "y": [0, 1]}), tmp_path / "a.parquet")
        for categories in ({"x": ["red"]}, {}):
            spec = dataset("parquet", path="a.parquet", target="y", categories=categories)
            assert (
                "'a.parquet' row 2, column 'x': the value is damaged, or its text is not UTF-8; write"
                in refusal(spec, data(1, classes=3), tmp_path)
            )


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, message in (
        ("absent.csv", "absent.csv' is neither a file nor a folder; mount the data there"),
        ("empty", "empty' holds no .csv or .tsv or .txt file; place the data there"),
    ):
        spec = dataset("csv", path=path, target="y")
        assert message in refusal(spec, data(1, classes=3), tmp_path)


def test_a_temporary_file_for_which_there_is_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/full/none")
    message = table_refusal(tmp_path, ROWS, inMemory=False)
    assert (
        "do not fit into '/dev/full/none' (Not a directory); set TMPDIR to a directory with more" in message
    )


def test_a_temporary_file_that_is_larger_than_the_pod_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEMPORARY_BYTES, "7")
    message = table_refusal(tmp_path, ROWS, inMemory=False)
    assert (
        "so far, and this pod may write 7 B of temporary files; set limits.ephemeral-storage in the"
        in message
    )
    monkeypatch.setenv(TEMPORARY_BYTES, "1000")
    assert len(csv(tmp_path, inMemory=False)) == 3


def test_a_trainer_without_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert "install 'fedsilo[tables]' in the trainer's image" in table_refusal(tmp_path, ROWS)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("config.target", "is missing")),
        ({"target": "y", "encoding": "latin-99"}, ("config.encoding", "is not a known encoding")),
        ({"target": "y", "delimiter": ";;"}, ("config.delimiter", "has more than 1 characters")),
        ({"target": "y", "columns": ["x", "y"]}, ("config.columns", "is also the target")),
        ({"target": "y", "categories": {"c": ["a", "a"]}}, ("config.categories.c", "is listed twice")),
        ({"target": "y", "categories": {"c": ["null", None]}}, ("config.categories.c", "is listed twice")),
        ({"target": "y", "categories": {"c": ["a\nb"]}}, ("config.categories.c", "has a control character")),
        (
            {"target": "y", "columns": ["x"], "categories": {"c": ["a"]}},
            ("config.categories.c", "is not among"),
        ),
        ({"target": "y", "fill": "0"}, ("config.fill", "is a string, not a number")),
    ],
)
def test_a_configuration_that_no_table_can_meet(config: dict[str, Any], expected: tuple[str, str]) -> None:
    [(path, _, problem, remedy)] = check_dataset(dataset("csv", path="a.csv", **config))
    assert path == expected[0]
    assert problem.startswith(expected[1])
    assert remedy


def test_a_file_that_is_no_text_is_refused_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_bytes(b"QK\x03\x04" + bytes(range(256)) * 20)
    message = refusal(dataset("csv", path="a.csv", target="default"), data(3), tmp_path)
    assert "'a.csv' line 2 is not text in utf-8; " in message
    assert capfd.readouterr().err == ""
