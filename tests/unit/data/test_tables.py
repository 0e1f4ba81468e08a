"""Tables as banks and hospitals have them, and each way in which one is wrong."""

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

from fedsilo.api.data import DataSpec, PreprocessingSpec
from fedsilo.data.catalogue import check_dataset
from fedsilo.data.loaders import Arrays, load
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.data.sources import LazyFeatures
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig
from fedsilo.data.table_files import _TextReader, open_parquet
from fedsilo.data.tables import read_table
from fedsilo.errors import DataInvalid
from fedsilo.process import TEMPORARY_BYTES
from tests.unit.data.specs import data, dataset
from tests.unit.data.test_bad_data import refusal

ROWS = "age,income,colour,default\n31,1200.5,red,0\n42, 800 ,green,1\n27,950,red,2\n"
COLOURS = {"colour": ["green", "red"]}


def csv(root: Path, text: str = ROWS, name: str = "a.csv", **config: Any) -> Arrays:
    (root / name).write_text(text)
    settings = {"path": name, "target": "default", "categories": COLOURS} | config
    return load(dataset("csv", **settings), data(4, classes=3), root=root)


def refused(root: Path, text: str, features: int = 4, **config: Any) -> str:
    (root / "a.csv").write_text(text)
    settings = {"path": "a.csv", "target": "default", "categories": COLOURS} | config
    return refusal(dataset("csv", **settings), data(features, classes=3), root)


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
    assert read_table(tmp_path, text, text_target=True).targets.tolist() == ["benign", "7"]
    number = text.model_copy(update={"target": "y"})
    assert read_table(tmp_path, number, text_target=False).targets.tolist() == [0.5, -2]
    several = text.model_copy(update={"target": ("y", "z")})
    assert read_table(tmp_path, several, text_target=False).targets.tolist() == [[0.5, 1], [-2, 0]]
    pq.write_table(pa.table({"x": [1.5], "kind": [1.0]}), tmp_path / "a.parquet")
    whole = ParquetConfig(path="a.parquet", target="kind")
    assert read_table(tmp_path, whole, text_target=True).targets.tolist() == ["1"]


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
    assert "the name of the column 'a\\x00' has a control character" in refused(
        tmp_path, "a\0,default\n1,0\n", categories={}
    )


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
            "'a.csv' has no column 'colour' (it has age); use one of age",
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
            "row 2, column 'age': 'old' is not a number; list its values in config.categories, or leave the",
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
    assert message in refused(tmp_path, text, **config)


def test_a_table_without_rows(tmp_path: Path) -> None:
    text = "age,colour,default\n"
    assert "there is not a single sample" in refused(tmp_path, text, features=3)


def test_rows_are_counted_over_all_blocks_of_a_file(tmp_path: Path) -> None:
    rows = "".join(f"{i}{'0' * 30},red,0\n" for i in range(150_000))
    assert "row 150001, column 'colour': 'blue'" in refused(
        tmp_path, f"age,colour,default\n{rows}1,blue,0\n", columns=["colour"], features=2
    )
    assert "row 150001 has 2 values" in refused(
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

    def watched(reader: _TextReader, item: object) -> None:
        lend(reader, item)
        lent.append(weakref.ref(item))

    monkeypatch.setattr(_TextReader, "_lend", watched)
    (tmp_path / "a.csv").write_bytes(b"age,default\n" + last + b"\n")
    with pytest.raises(DataInvalid, match=re.escape(message)):
        load(dataset("csv", path="a.csv", target="default"), data(1, classes=3), root=tmp_path)
    assert len(lent) >= 2
    assert [item() for item in lent if item() is not None] == []


def test_a_parquet_file_is_read_by_row_group_in_the_thread_that_asks(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.random.RandomState(0).rand(40_000)}), file, row_group_size=10_000)
    reads: list[tuple[int, int]] = []

    class Watched(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            content = super().read(size)
            reads.append((len(content), threading.get_ident()))
            return content

    with Watched(file) as stream:
        names, batches = open_parquet(stream, file, ParquetConfig(path="a", target="x"))
        assert (names, sum(batch.num_rows for batch in batches)) == (["x"], 40_000)
    assert {thread for _, thread in reads} == {threading.get_ident()}
    assert max(length for length, _ in reads) < file.stat().st_size / 2


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
    message = refused(tmp_path, ROWS, inMemory=False)
    assert (
        "do not fit into '/dev/full/none' (Not a directory); set TMPDIR to a directory with more" in message
    )


def test_a_temporary_file_that_is_larger_than_the_pod_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEMPORARY_BYTES, "7")
    message = refused(tmp_path, ROWS, inMemory=False)
    assert (
        "so far, and this pod may write 7 B of temporary files; set limits.ephemeral-storage in the"
        in message
    )
    monkeypatch.setenv(TEMPORARY_BYTES, "1000")
    assert len(csv(tmp_path, inMemory=False)) == 3


def test_a_trainer_without_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert "install 'fedsilo[tables]' in the trainer's image" in refused(tmp_path, ROWS)


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
    (tmp_path / "a.csv").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 20)
    message = refusal(dataset("csv", path="a.csv", target="default"), data(3), tmp_path)
    assert "'a.csv' line 2 is not text in utf-8; " in message
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("delimiter", "written"), [(";", "';'"), ("\t", r'"\t"'), ("|", "'|'")])
def test_another_delimiter_is_recognised(tmp_path: Path, delimiter: str, written: str) -> None:
    message = refused(tmp_path, ROWS.replace(",", delimiter))
    assert message.endswith(f"; set config.delimiter to {written}")
