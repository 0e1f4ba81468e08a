"""Tables as spreadsheet programs, databases and statistics packages export them."""

from __future__ import annotations

import datetime
import gzip
import tracemalloc
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec
from fedsilo.data.catalogue import check_dataset
from fedsilo.data.loaders import load
from fedsilo.data.sources import RowWriter
from fedsilo.data.table_configuration import CsvConfig
from fedsilo.data.table_values import RowPlace, numbers
from tests.unit.data.specs import data, dataset
from tests.unit.data.test_bad_data import refusal


def features(root: Path, content: str | bytes, count: int = 1, **config: Any) -> list[list[float]]:
    (root / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    spec = dataset("csv", **{"path": "a.csv", "target": "y"} | config)
    found: list[list[float]] = np.asarray(load(spec, data(count, classes=2), root=root).features).tolist()
    return found


def faults(root: Path, content: str | bytes, count: int = 1, **config: Any) -> str:
    (root / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return refusal(dataset("csv", **{"path": "a.csv", "target": "y"} | config), data(count, classes=2), root)


@pytest.mark.parametrize(
    ("written", "config", "number"),
    [
        ("23662,5", {"decimal": ","}, 23662.5),
        (",5", {"decimal": ","}, 0.5),
        ("-1.234.567,5", {"decimal": ",", "thousands": "."}, -1234567.5),
        ("1,234.5", {"thousands": ","}, 1234.5),
        ("12,34,567", {"thousands": ","}, 1234567),
        ("1234.5e2", {"thousands": ","}, 123450),
        ("1 234", {"thousands": " "}, 1234),
        ("1\u00a0234", {"thousands": " "}, 1234),
        ("1\u202f234,5", {"thousands": " ", "decimal": ","}, 1234.5),
        ("1\u2019234", {"thousands": "'"}, 1234),
        ("\u22121.5", {}, -1.5),
        ("\u22121,5", {"decimal": ","}, -1.5),
        ("\u00a07\u00a0", {}, 7),
    ],
)
def test_a_number_is_read_as_its_settings_write_it(
    tmp_path: Path, written: str, config: dict[str, Any], number: float
) -> None:
    assert features(tmp_path, f"x;y\n{written};0\n", delimiter=";", **config) == [[number]]


@given(
    st.lists(st.integers(-(10**12), 10**12), min_size=1),
    st.sampled_from([(".", ","), (",", "."), (",", "\u202f"), (".", "'"), (",", None), (".", None)]),
)
def test_a_number_that_is_written_with_separators_is_read_as_itself(
    thousandths: list[int], notation: tuple[str, str | None]
) -> None:
    decimal, thousands = notation
    config = CsvConfig.model_validate(
        {"path": "a", "target": "y", "decimal": decimal, "thousands": thousands}
    )
    marks = {",": thousands or "", ".": decimal}
    texts = ["".join(marks.get(mark, mark) for mark in f"{number / 1000:,.3f}") for number in thousandths]
    found = numbers(pa.array(texts), RowPlace("a", np.arange(len(texts))), "x", config, "")
    assert found.tolist() == [number / 1000 for number in thousandths]


@pytest.mark.parametrize(
    ("written", "config", "remedy"),
    [
        (["23662,01"], {}, "set config.decimal to ','"),
        (["1,288"], {}, "set config.decimal to ',' or config.thousands to ','"),
        (["1,288", "0,5"], {}, "set config.decimal to ','"),
        (["1,288", "2.5"], {}, "set config.thousands to ','"),
        (["1.234,56"], {}, "set config.decimal to ',' and config.thousands to '.'"),
        (["1 234"], {}, "set config.thousands to ' '"),
        (["1\u00a0234,5"], {}, "set config.decimal to ',' and config.thousands to ' '"),
        (["1'234.5"], {}, "set config.thousands to \"'\""),
        (["1.234"], {"decimal": ","}, "set config.decimal to '.' or config.thousands to '.'"),
        (["1,23", "ward"], {"thousands": ","}, "mend the value, or set config.decimal to ',' and config.thousands"),
        (["12%"], {}, "write the numbers without the percent sign, in all silos alike"),
        (["22.09.2023", "01.02.2024"], {}, "set config.dates of the column to '%d.%m.%Y'"),
        (["01/02/2024"], {}, "set config.dates of the column to '%d/%m/%Y' or '%m/%d/%Y'"),
        (["01/02/2024", "13/02/2024"], {}, "set config.dates of the column to '%d/%m/%Y'"),
        (["2024-02-01T10:00:00Z"], {}, "set config.dates of the column to '%Y-%m-%dT%H:%M:%S%z'"),
        (["5-"], {}, "write the minus sign before the number"),
        (["(5)"], {}, "write the minus sign before the number"),
        (["\u20ac5"], {}, "write the numbers without the sign of the currency, in all silos alike"),
        (["\uff11"], {}, "write the numbers with the digits 0 to 9"),
        (["#N/A"], {}, "list its values in config.categories, add it to config.missing if it says"),
    ],
)  # fmt: skip
def test_a_number_of_another_notation_is_refused_with_the_setting_that_reads_it(
    tmp_path: Path, written: list[str], config: dict[str, Any], remedy: str
) -> None:
    rows = "".join(f"{text};0\n" for text in written)
    found = faults(tmp_path, f"x;y\n{rows}", delimiter=";", **config)
    assert found.partition("; ")[2].startswith(remedy)
    assert found.partition("; ")[2] == remedy or remedy.startswith(("mend", "list"))


def test_targets_have_the_notation_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x;y\n1;2,5\n")
    spec = dataset("csv", path="a.csv", target="y", delimiter=";", decimal=",")
    regression = DataSpec(dataset="scans", input_shape=(1,))
    task = LearningTaskSpec(name="regression")
    assert load(spec, regression, root=tmp_path, task=task).labels.ravel().tolist() == [2.5]


def test_dates_become_days(tmp_path: Path) -> None:
    text = "day;y\n01.01.1970;0\n02.01.1970;1\n29.02.2024;0\n;1\n"
    config: dict[str, Any] = {"delimiter": ";", "dates": {"day": "%d.%m.%Y"}, "fill": -1.0}
    assert features(tmp_path, text, **config) == [[0], [1], [19782], [-1]]
    moments = "day,y\n1970-01-02T02:00:00+02:00,0\n"
    assert features(tmp_path, moments, dates={"day": "%Y-%m-%dT%H:%M:%S%z"}) == [[1]]
    first = moments.replace("1970-01-02T02", "0001-01-01T00")
    assert features(tmp_path, first, dates={"day": "%Y-%m-%dT%H:%M:%S%z"})[0][0] == pytest.approx(
        -719162, abs=1
    )
    found = faults(tmp_path, "day;y\n28.02.2023;0\n31.02.2023;0\n", **config)
    assert "row 2, column 'day': '31.02.2023' is not a date as config.dates has it, %d.%m.%Y; mend" in found
    found = faults(tmp_path, "day;y\n2023-02-28;0\n", **config)
    assert found.endswith("; set it to '%Y-%m-%d'")


def test_dates_of_a_parquet_file_need_no_setting(tmp_path: Path) -> None:
    days = [datetime.date(1970, 1, 2), None, datetime.date(1969, 12, 31)]
    noon = [datetime.datetime(1970, 1, 2, 12), None, datetime.datetime(1970, 1, 1)]
    pq.write_table(pa.table({"day": days, "noon": noon, "y": [0, 1, 0]}), tmp_path / "a.parquet")
    spec = dataset("parquet", path="a.parquet", target="y", fill=9.0)
    arrays = load(spec, data(2, classes=2), root=tmp_path)
    assert np.asarray(arrays.features).tolist() == [[1, 1.5], [9, 9], [-1, 0]]


@pytest.mark.parametrize(
    ("config", "field", "problem"),
    [
        ({"decimal": ",", "thousands": ","}, "config.thousands", "is also the decimal separator"),
        ({"decimal": "5"}, "config.decimal", "has not the right form"),
        ({"dates": {"x": "%Q"}}, "config.dates.x", "is no format of dates"),
        ({"dates": {"x": "day"}}, "config.dates.x", "is no format of dates"),
        ({"dates": {"x": "%Y"}, "categories": {"x": ["a"]}}, "config.dates.x", "is also in categories"),
        ({"dates": {"x": "%Y"}, "columns": ["z"]}, "config.dates.x", "is not among columns"),
        ({"skipRows": -1}, "config.skipRows", "is too small"),
        ({"columns": ["gro\u0308\u00dfe"]}, "config.columns", "is not in the composed form of Unicode"),
    ],
)
def test_a_notation_that_cannot_be(config: dict[str, Any], field: str, problem: str) -> None:
    [(path, _, said, remedy)] = check_dataset(dataset("csv", path="a.csv", target="y", **config))
    assert path == field
    assert said.startswith(problem)
    assert remedy


@pytest.mark.parametrize(
    ("before", "settings"),
    [
        ("sep=;\r\n", {"skipRows": 1, "delimiter": ";"}),
        ("# exported by the ward\r\n\r\n", {"skipRows": 2, "delimiter": ";"}),
        ('Report "monthly\r\n', {"skipRows": 1, "delimiter": ";"}),
        ("\ufeffsep=;\r\n", {"skipRows": 1, "delimiter": ";"}),
    ],
)
def test_lines_before_the_names_are_skipped_where_the_refusal_says_so(
    tmp_path: Path, before: str, settings: dict[str, Any]
) -> None:
    text = f"{before}x;y\r\n1;0\r\n2;1\r\n"
    lines = settings["skipRows"]
    said = f"the names are in line {lines + 1}, not in the first line; set config.skipRows to {lines}"
    assert f"{said} and config.delimiter to ';'" in faults(tmp_path, text)
    assert features(tmp_path, text, **settings) == [[1], [2]]
    found = faults(tmp_path, text + "3\r\n", **settings)
    assert "row 3 has 1 values, but there are 2 columns" in found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"x,y\n1,0\n"), "is compressed with gzip; decompress it"),
        (b"PK\x03\x04" + bytes(range(128, 256)), "is a workbook (xlsx, ods) or another zip archive; save the"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "is a workbook (xls); save the table as CSV"),
        (b"PAR1" + bytes(64), "is a Parquet file; set loader to parquet"),
        ("x,y\n1,0\n".encode("utf-16"), "is text in UTF-16; set config.encoding to utf-16"),
        (b"\xef\xbb\xbfx,y\n1,0\n", "is text in UTF-8; set config.encoding to utf-8"),
        ("x,y\n1,0\n".encode("utf-16-le"), "is text in UTF-16; set config.encoding to utf-16-le"),
        (b"<!DOCTYPE html><table>", "is HTML; save the table as CSV"),
    ],
    ids=["gzip", "xlsx", "xls", "parquet", "utf-16", "utf-8", "utf-16-le", "html"],
)  # fmt: skip
def test_what_is_no_text_is_told_by_its_first_bytes(tmp_path: Path, content: bytes, message: str) -> None:
    assert f"'a.csv' {message}" in faults(tmp_path, content, encoding="latin-1")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_text_in_its_own_encoding_is_no_other_format(tmp_path: Path, encoding: str) -> None:
    assert features(tmp_path, "x,y\n1,0\n".encode(encoding), encoding=encoding) == [[1]]


def test_columns_that_no_one_uses_need_no_names_of_their_own(tmp_path: Path) -> None:
    text = " x ;z;z;y;;\n1;2;3;0;;\n"
    assert features(tmp_path, text, delimiter=";", columns=["x"]) == [[1]]
    assert "'a.csv' has two columns 'z'; rename one" in faults(tmp_path, text, delimiter=";")
    assert "has two columns 'z'" in faults(tmp_path, text, delimiter=";", columns=["z"])
    rows = '"","x","y"\n"1",5,0\n'
    assert "has a column without a name, such as of row numbers or after a last" in faults(tmp_path, rows, 2)


def test_a_long_row_of_names_between_other_delimiters_is_found(tmp_path: Path) -> None:
    names = [f"gene{number:06}" for number in range(20_000)]
    text = "\t".join(["y", *names]) + "\n" + "\t".join("0" * 20_001) + "\n"
    assert 'set config.delimiter to "\\t"' in faults(tmp_path, text, 20_000)


def test_more_lines_are_skipped_than_there_are(tmp_path: Path) -> None:
    found = faults(tmp_path, "x,y\n1,0\n", skipRows=9)
    assert "'a.csv' has 2 lines, and config.skipRows is 9; set it to the number of lines before the" in found


def test_a_compressed_file_is_no_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(gzip.compress(b"PAR1"))
    found = refusal(dataset("parquet", path="a.parquet", target="y"), data(1, classes=2), tmp_path)
    assert "'a.parquet' is compressed with gzip; decompress it" in found


def test_texts_of_missing_values_may_be_categories(tmp_path: Path) -> None:
    text = "country,x,y\nNA,NA,0\nnull,1,1\nDE,2,0\n,3,1\n"
    config = {"categories": {"country": ["NA", "None", "DE", None]}, "fill": 0.0}
    assert features(tmp_path, text, 5, **config) == [
        [1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 0, 1, 0, 2],
        [0, 0, 0, 1, 3],
    ]


def test_texts_of_missing_values_may_be_classes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,NA\n2,EU\n3,None\n")
    spec = dataset("csv", path="a.csv", target="y").model_copy(update={"class_aliases": {"None": "EU"}})
    named = DataSpec(dataset="scans", classes=("EU", "NA"), input_shape=(1,))
    assert load(spec, named, root=tmp_path).labels.tolist() == [1, 0, 0]
    mapped = named.model_copy(update={"classes": ("EU", "na"), "on_schema_mismatch": "map"})
    assert load(spec, mapped, root=tmp_path).labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_and_categories_may_be_composed_or_decomposed(tmp_path: Path, form: Any) -> None:
    text = unicodedata.normalize(form, "größe,y\nmüde,0\nwach,1\n")
    config: dict[str, Any] = {"columns": ["größe"], "categories": {"größe": ["müde", "wach"]}}
    assert features(tmp_path, text, 2, **config) == [[1, 0], [0, 1]]
    names = [unicodedata.normalize(form, name) for name in ("größe", "y")]
    values = [[unicodedata.normalize(form, "müde"), "wach"], [0, 1]]
    pq.write_table(pa.table(dict(zip(names, values, strict=True))), tmp_path / "a.parquet")
    spec = dataset("parquet", path="a.parquet", target="y", **config)
    assert np.asarray(load(spec, data(2, classes=2), root=tmp_path).features).tolist() == [[1, 0], [0, 1]]


def test_one_person_is_one_in_both_forms_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,x,y\nJos\u00e9,1,0\nJose\u0301,2,1\n")
    spec = dataset("csv", path="a.csv", target="y", person="who")
    persons = load(spec, data(1, classes=2), root=tmp_path).persons
    assert persons is not None
    assert len(set(persons.tolist())) == 1


def test_rows_without_a_value_are_left_out_on_request(tmp_path: Path) -> None:
    text = "x,colour,y\n1,red,0\n2,red,\n,red,1\n4, NA ,1\n5,red,1\nsix,red,1\n"
    config: dict[str, Any] = {"categories": {"colour": ["red"]}, "dropMissing": ["y", "x", "colour"]}
    assert "row 6, column 'x': 'six' is not a number" in faults(tmp_path, text, 2, **config)
    right = text.replace("six", "6")
    assert features(tmp_path, right, 2, **config) == [[1, 1], [5, 1], [6, 1]]
    found = faults(tmp_path, right, 2, **config | {"dropMissing": ["x", "colour"]})
    assert "row 2, column 'y': the target is missing; mend or remove the row, or leave such rows out" in found


def test_faults_of_all_columns_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    text = "a,b,c,y\n1,x,red,0\n2,y,blue,\nfour,z,blue,5\n"
    found = faults(tmp_path, text, 5, categories={"c": ["red"]}).split("dataset 'scans': ")[1:]
    assert found[0].startswith(
        "the table has 3 features (a, b, c=red), but data.inputShape of the job is [5]"
    )
    assert [fault.partition(": ")[0] for fault in found[1:]] == [
        "'a.csv' row 3, column 'a'",
        "'a.csv' row 1, column 'b'",
        "'a.csv' row 2, column 'c'",
        "'a.csv' row 2, column 'y'",
    ]


def test_all_lacking_columns_are_told_at_once(tmp_path: Path) -> None:
    found = faults(tmp_path, "age,z\n1,2\n", columns=["agee", "weight"])
    assert [name for name in ("'y'", "'agee'", "'weight'") if f"has no column {name}" in found] == [
        "'y'",
        "'agee'",
        "'weight'",
    ]


def test_a_table_of_very_many_wrong_columns_names_some(tmp_path: Path) -> None:
    header = ",".join(f"c{place}" for place in range(300))
    found = faults(tmp_path, f"{header},y\n{'x,' * 300}0\n", 300)
    assert found.count("is not a number") == 20
    assert "'a.csv' has faults in 280 more columns; mend these first" in found


def test_many_categories_take_the_memory_of_their_features_and_little_more(tmp_path: Path) -> None:
    count, rows = 2000, 4000
    text = "c,y\n" + "".join(f"k{row % count},{row % 2}\n" for row in range(rows))
    (tmp_path / "a.csv").write_text(text)
    spec = dataset("csv", path="a.csv", target="y", categories={"c": [f"k{place}" for place in range(count)]})
    load(spec, data(count, classes=2), root=tmp_path)
    tracemalloc.start()
    try:
        arrays = load(spec, data(count, classes=2), root=tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.asarray(arrays.features).sum() == rows
    assert peak < 1.8 * arrays.features.nbytes


def test_rows_in_memory_are_never_held_twice() -> None:
    tracemalloc.start()
    try:
        writer = RowWriter(1000, None)
        for _ in range(10):
            writer.append(np.ones((1000, 1000), np.float32))
        held = writer.rows()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(held, np.ndarray)
    assert held.shape == (10_000, 1000)
    assert peak < 1.3 * held.nbytes


def test_a_value_of_many_categories_is_refused_in_few_words(tmp_path: Path) -> None:
    categories = {"c": [f"k{place}" for place in range(1000)]}
    assert len(faults(tmp_path, "c,y\nzzz,0\n", 1000, categories=categories)) < 300
    assert faults(tmp_path, "c,y\nMALE,0\n", 2, categories={"c": ["Female", "Male"]}).endswith("mean Male?")
    assert "did you mean k77?" in faults(tmp_path, "c,y\nK77,0\n", 1000, categories=categories)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfx,y\r\n1,0\r\n",
        b'\xef\xbb\xbf"x","y"\r\n"1","0"\r\n\r\n',
        b"x,y\r1,0\r",
        b"\n\nx,y\n1,0",
    ],
)
def test_marks_line_ends_and_quotes_of_other_programs(tmp_path: Path, content: bytes) -> None:
    assert features(tmp_path, content) == [[1]]
