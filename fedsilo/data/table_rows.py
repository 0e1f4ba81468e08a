"""Rows of a table, file by file: what each column becomes, and which columns have a fault.

A file is read to its end also where a column has a fault, so that those of all its columns are told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.text import comma_separated, count_text
from fedsilo.data.sources import RowWriter, StoredRows
from fedsilo.data.table_columns import CategoryColumn, NumberColumn
from fedsilo.data.table_configuration import TableConfig
from fedsilo.data.table_values import RowPlace, missing_values, numbers, texts
from fedsilo.errors import DataInvalid, quoted_value

if TYPE_CHECKING:
    import pyarrow

PART_BYTES = 1 << 24
"""Bytes of features that are made at a time, whatever a column's number of categories."""

MAX_FAULTS = 20
"""Columns of a file of which the fault is told."""


class RowReader:
    """Reads the rows of files with the same columns.

    :param encoders: of the columns that become features
    :param class_texts: texts that are classes of the target, and no missing value; None for a target of numbers
    :param expected: shape of the features that the job has, if it matters
    :param writer: of rows of features
    """

    def __init__(
        self,
        encoders: Sequence[NumberColumn | CategoryColumn],
        config: TableConfig,
        class_texts: Sequence[str] | None,
        expected: Sequence[int] | None,
        writer: RowWriter,
    ) -> None:
        self._encoders = encoders
        self._config = config
        self._class_texts = class_texts
        self._expected = expected
        self.features = tuple(feature for encoder in encoders for feature in encoder.features)
        self._writer = writer
        self._targets: list[np.ndarray] = []
        self._persons: list[np.ndarray] = []
        self._faults: dict[str, str] = {}

    def read(self, file: Path, batches: Iterable[pyarrow.RecordBatch]) -> None:
        """Read all rows of a file.

        :raises DataInvalid: with the first fault of each column
        """
        row = 1
        self._check_width()
        try:
            for batch in batches:
                rows = np.arange(row, row + batch.num_rows)
                row += batch.num_rows
                for part, place in self._parts(*self._kept_rows(batch, RowPlace(file.name, rows))):
                    self._append(part, place)
        except DataInvalid as error:
            raise DataInvalid(*self._told_faults(file), *error.args) from error
        if self._faults:
            raise DataInvalid(*self._told_faults(file))

    def rows(self) -> np.ndarray | StoredRows:
        """Features of all rows, (N, F) float32, or float64 where the job's rules say so."""
        return self._writer.rows()

    def targets(self) -> np.ndarray:
        """Targets of all rows, as `Table.targets`."""
        if self._targets:
            return np.concatenate(self._targets)
        columns = len(self._config.targets)
        return np.empty((0, columns) if columns > 1 else 0)

    def persons(self) -> np.ndarray | None:
        """Whose each row is; None where no column says."""
        if self._config.person is None:
            return None
        return np.concatenate([np.empty(0, np.str_), *self._persons])

    def _check_width(self) -> None:
        count = len(self.features)
        if self._expected is not None and self._expected != (count,):
            self._faults[""] = (
                f"the table has {count_text(count, 'feature')} ({quoted_value(comma_separated(self.features))}), but"
                f" data.inputShape of the job is {list(self._expected)}; correct config.columns or the job"
            )

    def _told_faults(self, file: Path) -> list[str]:
        told = list(self._faults.values())
        if len(told) <= MAX_FAULTS:
            return told
        more = count_text(len(told) - MAX_FAULTS, "more column")
        return [*told[:MAX_FAULTS], f"{file.name!r} has faults in {more}; mend these first"]

    @contextmanager
    def _noting(self, column: str) -> Iterator[None]:
        """Note the first fault of a column, and go on with the others."""
        try:
            yield
        except DataInvalid as error:
            self._faults.setdefault(column, error.marked_text)

    def _kept_rows(self, batch: pyarrow.RecordBatch, place: RowPlace) -> tuple[pyarrow.RecordBatch, RowPlace]:
        """Rows of a batch that have a value wherever the settings ask for one."""
        import pyarrow

        if self._config.drop_missing is None:
            return batch, place
        kept = np.ones(batch.num_rows, dtype=bool)
        for column in self._config.drop_missing:
            with self._noting(column):
                kept &= ~missing_values(batch[column], place, column, self._missing_texts(column))
        return batch.filter(pyarrow.array(kept)), RowPlace(place.file, place.rows[kept])

    def _missing_texts(self, column: str) -> tuple[str, ...]:
        names = self._class_texts if column in self._config.targets else None
        return self._config.missing_texts(column, names or ())

    def _parts(
        self, batch: pyarrow.RecordBatch, place: RowPlace
    ) -> Iterator[tuple[pyarrow.RecordBatch, RowPlace]]:
        """A batch in parts whose features take little memory."""
        step = max(1, PART_BYTES // (4 * max(1, len(self.features))))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step), RowPlace(place.file, place.rows[start : start + step])

    def _append(self, batch: pyarrow.RecordBatch, place: RowPlace) -> None:
        config, end = self._config, 0
        rows = np.zeros((batch.num_rows, len(self.features)), self._writer.dtype)
        for encoder in self._encoders:
            start, end = end, end + len(encoder.features)
            if encoder.column not in self._faults:
                with self._noting(encoder.column):
                    encoder.encode(batch[encoder.column], place, rows[:, start:end])
        targets, persons = list[np.ndarray](), list[np.ndarray]()
        for column in config.targets:
            with self._noting(column):
                targets.append(self._target(batch[column], column, place))
        if config.person is not None:
            with self._noting(config.person):
                persons.append(self._texts(batch[config.person], config.person, place, "the person"))
        if not self._faults:
            self._writer.append(rows)
            self._targets.append(targets[0] if len(targets) == 1 else np.stack(targets, axis=1))
            self._persons += persons

    def _target(self, values: pyarrow.Array, column: str, place: RowPlace) -> np.ndarray:
        """A column to predict: (n,) text or float64."""
        if self._class_texts is not None and len(self._config.targets) == 1:
            return self._texts(values, column, place, "the target")
        remedy = "give spec.data.classes of the job as a list of names, or write the target as numbers"
        found = numbers(values, place, column, self._config, remedy)
        _require_all(np.isnan(found), column, place, "the target")
        return found

    def _texts(self, values: pyarrow.Array, column: str, place: RowPlace, what: str) -> np.ndarray:
        """The texts of a column of which none may be missing, (n,)."""
        given = texts(values, place, column, self._missing_texts(column))
        _require_all(given.is_null().to_numpy(zero_copy_only=False), column, place, what)
        return np.array(given.to_pylist(), dtype=np.str_)


def _require_all(missing: np.ndarray, column: str, place: RowPlace, what: str) -> None:
    if missing.any():
        remedy = "mend or remove the row, or leave such rows out with config.dropMissing"
        raise place.fault(int(np.argmax(missing)), column, f"{what} is missing; {remedy}")
