"""Tables in CSV and Parquet files: columns by name become features, batch of rows by batch of rows.

A number is a feature, a category one feature of 0 or 1 for each of its declared categories, so that every silo that
declares the same has the same features, whatever its rows hold. Values are converted here and not by Arrow's guess of
a type, which depends on the rows of the first block: so each fault has its file, row and column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.class_names import name_problem
from fedsilo.api.text import comma_separated, join_names
from fedsilo.data.arrays import LoadedData
from fedsilo.data.comparison import comparable_name, nearest_name, rule_of
from fedsilo.data.features import FeatureRules
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.data.sources import RowWriter, StoredRows
from fedsilo.data.table_columns import CategoryColumn, NumberColumn, encoder_of
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig, TableConfig
from fedsilo.data.table_rows import RowReader
from fedsilo.errors import DataInvalid, quoted_value

if TYPE_CHECKING:
    import pyarrow

    from fedsilo.api.data import DataSpec

SUFFIXES = {CsvConfig: (".csv", ".tsv", ".txt"), ParquetConfig: (".parquet", ".pq")}
"""Names of the files that are read of a folder."""


@dataclass(frozen=True)
class Table:
    """Rows of all files.

    :param columns: name of each feature, `column` or `column=category`
    :param features: (N, len(columns)), float32, or float64 where the job's rules say so
    :param targets: (N,) float64, or text where the target is text; (N, k) float64 for a target of k columns
    :param schema: of features and target
    :param persons: (N,) text, whose each row is; None where no column says
    """

    columns: tuple[str, ...]
    features: np.ndarray | StoredRows
    targets: np.ndarray
    schema: Schema
    persons: np.ndarray | None = None


def read_table(
    root: Path,
    config: CsvConfig | ParquetConfig,
    *,
    class_texts: Sequence[str] | None = None,
    rules: FeatureRules | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> Table:
    """All rows of the configured files, in their order.

    :param root: folder that relative paths start from
    :param class_texts: take the target as text, also where it looks like a number or a missing value: the job has
        names of classes, and of these texts each is one
    :param rules: of the features; missing numbers that they admit stay missing, as NaN, where the configuration does
        not fill them in
    :param input_shape: shape of the features that the job has, where that matters
    :raises DataInvalid: a file, column or value that cannot be used, naming it; of a file the first of every column
    """
    _require_pyarrow()
    rules = rules or FeatureRules()
    selected = config.columns
    encoders: list[NumberColumn | CategoryColumn] = []
    reader: RowReader | None = None
    for file in _files(root, config):
        with _open_table(file, config) as (names, batches):
            _require_columns(file, names, config, [*config.used_columns, *(selected or ())])
            if selected is None:
                others = (*config.targets, config.person)
                selected = tuple(name for name in names if name not in others)
                _require_names(selected, file)
            if reader is None:
                encoders = [encoder_of(name, config, rules.missing) for name in selected]
                writer = RowWriter(
                    sum(len(encoder.features) for encoder in encoders), config.in_memory, rules
                )
                reader = RowReader(encoders, config, class_texts, input_shape, writer)
            reader.read(file, batches)
    assert reader is not None
    schema = Schema(
        columns=tuple(encoder.schema_column for encoder in encoders),
        target=_target_column(config, class_texts is not None),
    )
    return Table(reader.features, reader.rows(), reader.targets(), schema, reader.persons())


def _target_column(config: TableConfig, text_target: bool) -> TableColumn | None:
    if len(config.targets) > 1:
        return None
    return TableColumn(config.targets[0], "category" if text_target else "number")


def read_labelled_table(
    root: Path,
    config: CsvConfig | ParquetConfig,
    data: DataSpec,
    rules: FeatureRules,
    aliases: Collection[str] = (),
) -> LoadedData:
    """The table of a job whose example is a vector; errors as `read_table`.

    Where the job has names of classes, the target's values are such names, whatever they look like.

    :param aliases: further names of its classes
    """
    table = read_table(
        root,
        config,
        class_texts=_class_texts(config, data, aliases),
        rules=rules,
        input_shape=tuple(data.input_shape),
    )
    if not len(table.targets):
        raise DataInvalid("there is not a single sample; give at least one")
    if table.targets.dtype.kind != "U":
        return LoadedData(table.features, table.targets, schema=table.schema, persons=table.persons)
    names, labels = np.unique(table.targets, return_inverse=True)
    classes = names.tolist()
    return LoadedData(
        table.features, labels, classes, ordered=False, schema=table.schema, persons=table.persons
    )


def _class_texts(config: TableConfig, data: DataSpec, aliases: Collection[str]) -> Sequence[str] | None:
    """Texts of missing values that are names of the job's classes; None where it has no names."""
    if data.class_names is None:
        return None
    rule = rule_of(data)
    known = {comparable_name(name, rule) for name in data.class_names} | set(aliases)
    return [text for text in config.missing if {text, comparable_name(text, rule)} & known]


def _require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise DataInvalid(
            "loader: tables need pyarrow, which is not installed; install 'fedsilo[tables]' in the trainer's image"
        ) from error


def _files(root: Path, config: CsvConfig | ParquetConfig) -> list[Path]:
    paths = (config.path,) if isinstance(config.path, str) else config.path
    files: list[Path] = []
    for path in (root / name for name in paths):
        if path.is_dir():
            suffixes = SUFFIXES[type(config)]
            found = sorted(entry for entry in path.iterdir() if entry.suffix in suffixes and entry.is_file())
            if not found:
                raise DataInvalid(
                    f"config.path: {str(path)!r} holds no {' or '.join(suffixes)} file; place the data there or"
                    " correct the path"
                )
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise DataInvalid(
                f"config.path: {str(path)!r} is neither a file nor a folder; mount the data there or correct the path"
            )
    return files


@contextmanager
def _open_table(
    file: Path, config: CsvConfig | ParquetConfig
) -> Iterator[tuple[list[str], Iterator[pyarrow.RecordBatch]]]:
    """Names of a file's columns, and its rows by batch."""
    from fedsilo.data.table_files import open_csv, open_parquet

    with file.open("rb") as stream:
        names, batches = (
            open_csv(stream, file, config)
            if isinstance(config, CsvConfig)
            else open_parquet(stream, file, config)
        )
        with closing(batches):
            yield names, batches


def _require_columns(
    file: Path, names: Sequence[str], config: CsvConfig | ParquetConfig, needed: Sequence[str]
) -> None:
    """Refuse a file that lacks columns.

    :raises DataInvalid: naming each, or why none is where it is looked for
    """
    counts = Counter(names)
    read = names if config.columns is None else needed
    twice = next((name for name in read if counts[name] > 1), None)
    if twice is not None:
        raise DataInvalid(f"{file.name!r} has two columns {quoted_value(repr(twice))}; rename one")
    lacking = [name for name in dict.fromkeys(needed) if name not in names]
    if not lacking:
        return
    has = f"it has {quoted_value(comma_separated(names))}"
    if isinstance(config, CsvConfig) and (remedy := _header_remedy(file, names, config, needed)) is not None:
        columns = join_names([repr(name) for name in lacking], 10)
        raise DataInvalid(f"{file.name!r} has no column {columns} ({has}); {remedy}")
    raise DataInvalid(
        *(
            # Without a row of names, what stands in its place are the first example's values.
            f"{file.name!r} has no column {name!r} ({has}); {quoted_value(_name_remedy(name, names))}"
            for name in lacking
        )
    )


def _name_remedy(name: str, names: Sequence[str]) -> str:
    near = nearest_name(name, names)
    return f"did you mean {near}?" if near is not None else f"use one of {comma_separated(names)}"


def _header_remedy(file: Path, names: Sequence[str], config: CsvConfig, needed: Sequence[str]) -> str | None:
    """The remedy where the names are in another line, or between other delimiters, than those that were read."""
    from fedsilo.data.table_files import DELIMITERS, names_line

    if (found := names_line(file, config, needed)) is not None:
        line, delimiter = found
        settings = []
        if line - 1 != config.skip_rows:
            settings.append(f"config.skipRows to {line - 1}")
        if delimiter != config.delimiter:
            settings.append(f"config.delimiter to {_quoted_delimiter(delimiter)}")
        where = "" if line == 1 else f"the names are in line {line}, not in the first line; "
        return f"{where}set {' and '.join(settings)}" if settings else None
    other = next((mark for mark in DELIMITERS if len(names) == 1 and mark in names[0]), None)
    return None if other is None else f"set config.delimiter to {_quoted_delimiter(other)}"


def _quoted_delimiter(delimiter: str) -> str:
    return '"\\t"' if delimiter == "\t" else repr(delimiter)


def _require_names(names: Sequence[str], file: Path) -> None:
    """Refuse names that no schema can hold."""
    for name in names:
        if not name:
            raise DataInvalid(
                f"{file.name!r} has a column without a name, such as of row numbers or after a last delimiter; give it"
                " one, or list the columns of the features in config.columns"
            )
        if (found := name_problem(name)) is not None:
            raise DataInvalid(
                f"{file.name!r}: the name of the column {quoted_value(repr(name[:100]))} {found[0]}; {found[1]}"
            )
