"""Tables in CSV and Parquet files: columns by name become features, batch of rows by batch of rows.

A number is a feature, a category one feature of 0 or 1 for each of its declared categories, so that every silo that
declares the same has the same features, whatever its rows hold. Values are converted here and not by Arrow's guess of
a type, which depends on the rows of the first block: so each fault has its file, row and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsilo.api.class_names import name_problem
from fedsilo.api.messages import closest
from fedsilo.api.text import comma_separated, count_text
from fedsilo.data.arrays import LoadedData
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.data.sources import RowWriter, StoredRows
from fedsilo.data.table_columns import CategoryColumn, NumberColumn, RowPlace, encoder_of, numbers, texts
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig, TableConfig
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
    :param features: (N, len(columns)), float32
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
    root: Path, config: CsvConfig | ParquetConfig, *, text_target: bool, imputes: bool = False
) -> Table:
    """All rows of the configured files, in their order.

    :param root: folder that relative paths start from
    :param text_target: take the target as text, also where it looks like a number: the job has names of classes
    :param imputes: leave missing numbers missing, as NaN, where the configuration does not fill them in
    :raises DataInvalid: a file, column or value that cannot be used, naming it
    """
    _require_pyarrow()
    selected: tuple[str, ...] | None = None
    encoders: list[NumberColumn | CategoryColumn] = []
    writer: RowWriter | None = None
    targets: list[np.ndarray] = []
    persons: list[np.ndarray] = []
    extra = () if config.person is None else (config.person,)
    for file in _files(root, config):
        with _open_table(file, config) as (names, batches):
            _require_columns(file, names, [*config.targets, *extra, *(selected or config.columns or ())])
            if selected is None:
                others = (*config.targets, *extra)
                selected = config.columns or tuple(name for name in names if name not in others)
                _require_columns(file, selected, config.categories)
                _require_names([*selected, *config.targets], file)
                encoders = [encoder_of(name, config, imputes) for name in selected]
                writer = RowWriter(sum(len(encoder.features) for encoder in encoders), config.in_memory)
            assert writer is not None
            row = 1
            for batch in batches:
                place = RowPlace(file.name, row)
                writer.append(
                    np.hstack([encoder.encode(batch[encoder.column], place) for encoder in encoders])
                )
                targets.append(_targets(batch, config.targets, place, text=text_target))
                persons += [_texts(batch[column], column, place, "the person") for column in extra]
                row += batch.num_rows
    assert writer is not None
    return Table(
        tuple(feature for encoder in encoders for feature in encoder.features),
        writer.rows(),
        _joined_targets(targets, config),
        Schema(
            columns=tuple(encoder.schema_column for encoder in encoders),
            target=_target_column(config, text_target),
        ),
        np.concatenate([np.empty(0, np.str_), *persons]) if extra else None,
    )


def _target_column(config: TableConfig, text_target: bool) -> TableColumn | None:
    if len(config.targets) > 1:
        return None
    return TableColumn(config.targets[0], "category" if text_target else "number")


def read_labelled_table(root: Path, config: CsvConfig | ParquetConfig, data: DataSpec) -> LoadedData:
    """The table of a job whose example is a vector; errors as `read_table`.

    Where the job has names of classes, the target's values are such names, whatever they look like.
    """
    table = read_table(root, config, text_target=data.class_names is not None, imputes=data.imputes)
    if tuple(data.input_shape) != (len(table.columns),):
        raise DataInvalid(
            f"the table has {count_text(len(table.columns), 'feature')} "
            f"({quoted_value(comma_separated(table.columns))}), but"
            f" data.inputShape of the job is {list(data.input_shape)}; correct config.columns or the job"
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


def _require_columns(file: Path, names: Sequence[str], needed: Any) -> None:
    for name in needed:
        if name not in names:
            # Without a row of names, what stands in its place are the first example's values.
            remedy = _delimiter_instead(names) or quoted_value(closest(name, names))
            raise DataInvalid(
                f"{file.name!r} has no column {name!r} (it has {quoted_value(comma_separated(names))}); {remedy}"
            )


def _delimiter_instead(names: Sequence[str]) -> str | None:
    """The remedy where a file seems to be read with another delimiter than its own: it has a single column."""
    for delimiter, written in ((";", "';'"), ("\t", '"\\t"'), ("|", "'|'"), (",", "','")):
        if len(names) == 1 and delimiter in names[0]:
            return f"set config.delimiter to {written}"
    return None


def _require_names(names: Sequence[str], file: Path) -> None:
    """Refuse names that no schema can hold."""
    for name in names:
        if (found := name_problem(name)) is not None:
            raise DataInvalid(
                f"{file.name!r}: the name of the column {quoted_value(repr(name[:100]))} {found[0]}; {found[1]}"
            )


def _targets(
    batch: pyarrow.RecordBatch, columns: Sequence[str], place: RowPlace, *, text: bool
) -> np.ndarray:
    """The targets of a batch: (n,) text or float64, or (n, k) float64."""
    found = [_target(batch[column], column, place, text=text and len(columns) == 1) for column in columns]
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


def _target(values: pyarrow.Array, column: str, place: RowPlace, *, text: bool) -> np.ndarray:
    if text:
        return _texts(values, column, place, "the target")
    remedy = "give spec.data.classes of the job as a list of names, or write the target as numbers"
    result = numbers(values, place, column, remedy)
    _require_all(np.isnan(result), column, place, "the target")
    return result


def _texts(values: pyarrow.Array, column: str, place: RowPlace, what: str) -> np.ndarray:
    """The texts of a column of which none may be missing, (n,)."""
    given = texts(values, place, column)
    _require_all(np.array([text is None for text in given], dtype=bool), column, place, what)
    return np.array(given, dtype=np.str_)


def _require_all(missing: np.ndarray, column: str, place: RowPlace, what: str) -> None:
    if missing.any():
        raise place.fault(int(np.argmax(missing)), column, f"{what} is missing; mend or remove the row")


def _joined_targets(targets: list[np.ndarray], config: TableConfig) -> np.ndarray:
    if targets:
        return np.concatenate(targets)
    return np.empty((0, len(config.targets)) if len(config.targets) > 1 else 0)
