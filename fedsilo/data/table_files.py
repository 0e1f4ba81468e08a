"""Files of rows and columns, opened with Arrow: names of columns, and batches of rows.

Imported only where a table is read: Arrow is an extra.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from fedsilo.api.text import first_line
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig
from fedsilo.errors import DataInvalid

BLOCK_BYTES = 1 << 22
"""Of a text file that are parsed at a time."""

_PASSED_ON = ("utf-8", "ascii")
"""Encodings whose bytes Arrow parses without converting them."""

BATCH_ROWS = 1 << 14
"""Rows of a Parquet file that are decoded at a time."""

Opened = tuple[list[str], Iterator[pyarrow.RecordBatch]]
"""Names of the columns, and rows by batch."""


def open_csv(stream: IO[bytes], file: Path, config: CsvConfig) -> Opened:
    """A text file; every value is text, missing ones are null.

    :raises DataInvalid: naming the row that has another number of values, or bytes of another encoding
    """
    ragged: list[pyarrow.csv.InvalidRow] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    content = stream if codecs.lookup(config.encoding).name not in _PASSED_ON else _Utf8(stream)
    names = _header(content, file, config)
    reading = pyarrow.csv.ReadOptions(encoding=config.encoding, use_threads=False, block_size=BLOCK_BYTES)
    parsing = pyarrow.csv.ParseOptions(
        delimiter=config.delimiter, newlines_in_values=True, invalid_row_handler=refuse
    )
    converting = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pyarrow.string()),
        strings_can_be_null=True,
        null_values=list(config.missing),
    )

    def batches() -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from pyarrow.csv.open_csv(content, reading, parsing, converting)
        except (pyarrow.ArrowException, UnicodeError) as error:
            if ragged:
                row = ragged[0]
                raise DataInvalid(
                    f"{file.name!r} row {row.number - 1} has {row.actual_columns} values, but there are"
                    f" {row.expected_columns} columns; mend the row, or correct config.delimiter"
                ) from error
            raise _unreadable(file, config, error) from error

    return names, batches()


class _Utf8(io.RawIOBase):
    """A stream of UTF-8 that raises where it is none.

    Arrow converts other encodings before it divides a text into rows. UTF-8 it takes as it is, and reports a row that
    it cannot divide as text, which fails inside of it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """As many bytes as there are, at most `size`; they may end inside of a character."""
        content = self._stream.read(size)
        self._decoder.decode(content, final=not content)
        return content

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """To the beginning of a character."""
        self._decoder.reset()
        return self._stream.seek(place, whence)


def _header(stream: IO[bytes] | io.RawIOBase, file: Path, config: CsvConfig) -> list[str]:
    """Names of columns, as the first row has them."""
    reading = pyarrow.csv.ReadOptions(encoding=config.encoding, use_threads=False)
    parsing = pyarrow.csv.ParseOptions(
        delimiter=config.delimiter, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
    )
    try:
        names: list[str] = pyarrow.csv.open_csv(stream, reading, parsing).schema.names
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise _unreadable(file, config, error) from error
    stream.seek(0)
    _require_distinct(names, file)
    return names


def _unreadable(file: Path, config: CsvConfig, error: Exception) -> DataInvalid:
    """What is wrong with a text file: most often its encoding, of which the first wrong line is told."""
    line, decoder = 0, codecs.getincrementaldecoder(config.encoding)()
    try:
        with file.open("rb") as content:
            for text in content:
                decoder.decode(text)
                line += 1
        decoder.decode(b"", final=True)
    except UnicodeError:
        return DataInvalid(
            f"{file.name!r} line {line + 1} is not text in {config.encoding}; set config.encoding to the file's,"
            " such as latin-1, cp1252 or utf-16"
        )
    return DataInvalid(f"{file.name!r} cannot be read ({first_line(error)}); write the file anew")


def open_parquet(stream: IO[bytes], file: Path, config: ParquetConfig) -> Opened:
    """A Parquet file, of which only the columns that are needed are decoded.

    :raises DataInvalid: it is no Parquet file, or is damaged
    """
    try:
        opened = pyarrow.parquet.ParquetFile(stream, page_checksum_verification=True)
        names: list[str] = opened.schema_arrow.names
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:  # names of columns may be no UTF-8
        raise _damaged(file, error) from error
    _require_distinct(names, file)
    wanted = names if config.columns is None else [*config.columns, *config.targets]

    def batches() -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from opened.iter_batches(BATCH_ROWS, columns=wanted, use_threads=False)
        except (pyarrow.ArrowException, OSError, UnicodeError) as error:
            raise _damaged(file, error) from error

    return names, batches()


def _damaged(file: Path, error: Exception) -> DataInvalid:
    return DataInvalid(f"{file.name!r} cannot be read as Parquet ({first_line(error)}); write the file anew")


def _require_distinct(names: list[str], file: Path) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataInvalid(f"{file.name!r} has two columns {name!r}; rename one")
