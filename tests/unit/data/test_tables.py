"""Tables as banks and hospitals have them, and what becomes of them."""

from __future__ import annotations

import io
import re
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typing_extensions import override

from fedsilo.api.data import DataSpec, PreprocessingSpec
from fedsilo.data.loaders import load
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.data.sources import LazyFeatures
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig
from fedsilo.data.table_files import _TextReader, open_parquet
from fedsilo.data.tables import read_table
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import data, dataset
from tests.unit.data.tables import COLOURS, ROWS, csv, table_refusal
from tests.unit.data.test_bad_data import refusal


def test_numbers_and_categories_become_features_in_the_order_of_the_columns(tmp_path: Path) -> None:
    arrays = csv(tmp_path)
    assert arrays.features.dtype == np.float32
    assert np.asarray(arrays.features).tolist() == [[31, 1200.5, 0, 1], [42, 800, 1, 0], [27, 950, 0, 1]]
    assert arrays.labels.tolist() == [0, 1, 2]
    chosen = csv(tmp_path, columns=["colour", "income", "age"])
    assert np.asarray(chosen.features)[1].tolist() == [1, 0, 800, 42]


def test_columns_are_found_by_name_in_every_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "2.csv").write_text("default,colour,age,income\n2,green,50,7\n")
    (tmp_path / "all" / "1.csv").write_text(ROWS)
    (tmp_path / "all" / "notes.md").write_text("no table")
    spec = dataset("csv", path="all", target="default", categories=COLOURS)
    arrays = load(spec, data(4, classes=3), root=tmp_path)
    assert arrays.labels.tolist() == [0, 1, 2, 2]
    assert np.asarray(arrays.features)[3].tolist() == [50, 7, 1, 0]
    both = dataset("csv", path=["all/2.csv", "all/1.csv"], target="default", columns=["age"])
    assert np.asarray(load(both, data(1, classes=3), root=tmp_path).features)[:, 0].tolist() == [
        50,
        31,
        42,
        27,
    ]


def test_missing_values_are_filled_or_are_a_category_of_their_own(tmp_path: Path) -> None:
    text = "age,colour,default\n,red,0\nNA,,1\n5,green,1\n"
    arrays = csv(tmp_path, text, fill=-1.0, categories={"colour": ["green", "red", None]})
    assert np.asarray(arrays.features).tolist() == [[-1, 0, 1, 0], [-1, 0, 0, 1], [5, 1, 0, 0]]


def test_quoted_values_other_delimiters_and_encodings(tmp_path: Path) -> None:
    text = 'größe;colour;default\n1;"red";0\n2;"gr""au";1\n'
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    spec = dataset(
        "csv",
        path="a.csv",
        target="default",
        delimiter=";",
        encoding="latin-1",
        categories={"colour": ["red", 'gr"au']},
    )
    arrays = load(spec, data(3, classes=3), root=tmp_path)
    assert np.asarray(arrays.features).tolist() == [[1, 1, 0], [2, 0, 1]]


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    table = pa.table(
        {
            "default": pa.array([0, 1, 2], pa.int8()),
            "age": pa.array([31, 42, 27], pa.int64()),
            "colour": pa.array(["red", "green", "red"]).dictionary_encode(),
            "income": pa.array([1200.5, 800, 950], pa.float64()),
            "unused": pa.array([[1], [2], [3]]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    spec = dataset(
        "parquet",
        path="a.parquet",
        target="default",
        columns=["age", "income", "colour"],
        categories=COLOURS,
    )
    arrays = load(spec, data(4, classes=3), root=tmp_path)
    assert np.array_equal(arrays.features, csv(tmp_path).features)
    assert arrays.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_missing_number_stays_missing_where_the_job_imputes(tmp_path: Path, in_memory: bool) -> None:
    (tmp_path / "a.csv").write_text("age,income,default\n31,,0\nNA,800,1\n")
    imputing = data(2, classes=2).model_copy(update={"preprocessing": PreprocessingSpec(impute="mean")})
    settings: dict[str, Any] = {"path": "a.csv", "target": "default", "inMemory": in_memory}
    features = np.asarray(load(dataset("csv", **settings), imputing, root=tmp_path).features)
    np.testing.assert_array_equal(features, [[31, np.nan], [np.nan, 800]])
    filled = np.asarray(load(dataset("csv", fill=-1, **settings), imputing, root=tmp_path).features)
    assert filled.tolist() == [[31, -1], [-1, 800]]
    (tmp_path / "a.csv").write_text("age,income,default\n31,,0\ninf,800,1\n")
    with pytest.raises(DataInvalid, match="row 2, column 'age': inf is not a finite float32"):
        load(dataset("csv", **settings), imputing, root=tmp_path)


def test_targets_may_be_text_numbers_or_several_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,kind,y,z\n1,benign,0.5,1\n2,7,-2,0\n")
    text = CsvConfig(path="a.csv", target="kind", columns=("x",))
    assert read_table(tmp_path, text, class_texts=()).targets.tolist() == ["benign", "7"]
    number = text.model_copy(update={"target": "y"})
    assert read_table(tmp_path, number, class_texts=None).targets.tolist() == [0.5, -2]
    several = text.model_copy(update={"target": ("y", "z")})
    assert read_table(tmp_path, several, class_texts=None).targets.tolist() == [[0.5, 1], [-2, 0]]
    pq.write_table(pa.table({"x": [1.5], "kind": [1.0]}), tmp_path / "a.parquet")
    whole = ParquetConfig(path="a.parquet", target="kind")
    assert read_table(tmp_path, whole, class_texts=()).targets.tolist() == ["1"]


def test_a_table_larger_than_memory_is_read_from_a_file_with_the_same_numbers(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i / 7},{('green', 'red')[i % 2]},{i % 3}\n" for i in range(50_000))
    text = "age,income,colour,default\n" + rows
    held, stored = csv(tmp_path, text), csv(tmp_path, text, inMemory=False)
    assert isinstance(stored.features, LazyFeatures)
    assert np.array_equal(stored.features, held.features)
    chosen = np.array([49_999, 3, 3, 20_000])
    assert np.array_equal(stored.take(chosen).features, held.take(chosen).features)


def test_names_of_classes_are_what_the_target_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,kind\n1,malignant\n2,benign\n3,malignant\n")
    spec = dataset("csv", path="a.csv", target="kind")
    named = DataSpec(dataset="scans", classes=("benign", "malignant", "normal"), input_shape=(1,))
    arrays = load(spec, named, root=tmp_path)
    assert arrays.labels.tolist() == [1, 0, 1]
    assert arrays.schema == Schema(
        classes=("benign", "malignant", "normal"),
        columns=(TableColumn("x", "number"),),
        target=TableColumn("kind", "category"),
    )
    misspelt = DataSpec(dataset="scans", classes=("benign", "malign"), input_shape=(1,))
    assert "malignant" in refusal(spec, misspelt, tmp_path)
    (tmp_path / "a.csv").write_text("x,kind\n1,0\n2,1\n")
    assert "'0'" in refusal(spec, named, tmp_path), "a number is no position in the list of names"


def test_the_schema_has_columns_and_categories(tmp_path: Path) -> None:
    arrays = csv(tmp_path, columns=["colour", "age"], categories={"colour": ["red", "green", None]})
    assert arrays.schema == Schema(
        columns=(TableColumn("colour", "category", ("red", "green", "null")), TableColumn("age", "number")),
        target=TableColumn("default", "number"),
    )
    Schema.from_dict(arrays.schema.to_dict())
    assert "the name of the column 'a\\x00' has a control character" in table_refusal(
        tmp_path, "a\0,default\n1,0\n", categories={}
    )


def test_rows_are_counted_over_all_blocks_of_a_file(tmp_path: Path) -> None:
    rows = "".join(f"{i}{'0' * 30},red,0\n" for i in range(150_000))
    assert "row 150001, column 'colour': 'blue'" in table_refusal(
        tmp_path, f"age,colour,default\n{rows}1,blue,0\n", columns=["colour"], features=2
    )
    assert "row 150001 has 2 values" in table_refusal(
        tmp_path, f"age,colour,default\n{rows}1,red\n", columns=["colour"]
    )


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (b"old,0", "row 1, column 'age': 'old' is not a number"),
        (b"1", "row 1 has 1 values, but there are 2 columns"),
        (b"\xe9,0", "'a.csv' line 2 is not text in utf-8"),
        (b"1,5", "item 0: label 5.0 is not a class"),
    ],
)
def test_no_thread_of_arrow_holds_a_text_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bytes, message: str
) -> None:
    lent: list[weakref.ref[Any]] = []
    lend = _TextReader._lend

    def record_lend(reader: _TextReader, item: object) -> None:
        lend(reader, item)
        lent.append(weakref.ref(item))

    monkeypatch.setattr(_TextReader, "_lend", record_lend)
    (tmp_path / "a.csv").write_bytes(b"age,default\n" + last + b"\n")
    with pytest.raises(DataInvalid, match=re.escape(message)):
        load(dataset("csv", path="a.csv", target="default"), data(1, classes=3), root=tmp_path)
    assert len(lent) >= 2
    assert [item() for item in lent if item() is not None] == []


def test_a_parquet_file_is_read_by_row_group_in_the_thread_that_asks(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.random.RandomState(0).rand(40_000)}), file, row_group_size=10_000)
    reads: list[tuple[int, int]] = []

    class RecordingFile(io.FileIO):
        @override
        def read(self, size: int | None = -1) -> bytes:
            content = super().read(size)
            reads.append((len(content), threading.get_ident()))
            return content

    with RecordingFile(file) as stream:
        names, batches = open_parquet(stream, file, ParquetConfig(path="a", target="x"))
        assert (names, sum(batch.num_rows for batch in batches)) == (["x"], 40_000)
    assert {thread for _, thread in reads} == {threading.get_ident()}
    assert max(length for length, _ in reads) < file.stat().st_size / 2


@pytest.mark.parametrize(("delimiter", "written"), [(";", "';'"), ("\t", r'"\t"'), ("|", "'|'")])
def test_another_delimiter_is_recognised(tmp_path: Path, delimiter: str, written: str) -> None:
    message = table_refusal(tmp_path, ROWS.replace(",", delimiter))
    assert message.endswith(f"; set config.delimiter to {written}")
