"""Files of rows and columns, opened with Arrow: names of columns, and batches of rows.

Imported only where a table is read: Arrow is an extra.
"""

from __future__ import annotations

import codecs
import csv
import io
import unicodedata
import weakref
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from traceback import clear_frames
from types import TracebackType
from typing import IO, Any, Self

import pyarrow
import pyarrow.csv
import pyarrow.parquet
from typing_extensions import override

from fedsilo.api.text import count_text, first_line
from fedsilo.data.file_signatures import SIGNATURE_BYTES, format_problem
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig
from fedsilo.errors import DataInvalid, quoted_value

BLOCK_BYTES = 1 << 22
"""Bytes of a text file that are parsed at a time."""

_PASSED_ON = ("utf-8", "ascii")
"""Encodings whose bytes Arrow parses without converting them."""

RELEASE_SECONDS = 10
"""How long a reader of a text that is closed waits for Arrow's threads at most; they need milliseconds."""

BATCH_ROWS = 1 << 14
"""Rows of a Parquet file that are decoded at a time."""

SEARCHED_LINES = 50
"""Lines in which the names of columns are looked for, where they are not in the first."""

DELIMITERS = (",", ";", "\t", "|")
"""Delimiters that are proposed."""

OpenedTable = tuple[list[str], Generator[pyarrow.RecordBatch, None, None]]
"""Names of the columns, and rows by batch."""


def open_csv(stream: IO[bytes], file: Path, config: CsvConfig) -> OpenedTable:
    """Open a CSV file as batches of rows; every value is text, also a missing one.

    Batches that are not read to their end have to be closed.

    :raises DataInvalid: naming the row that has another number of values, or bytes of another encoding
    """
    _refuse_other_formats(stream, file, config)
    names = _header(stream, file, config)
    reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, skip_rows=config.skip_rows)
    converting = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False
    )

    plain = _plain_names(names)

    def batches() -> Generator[pyarrow.RecordBatch, None, None]:
        ragged: list[pyarrow.csv.InvalidRow] = []

        def refuse(row: pyarrow.csv.InvalidRow) -> str:
            ragged.append(row)
            return "error"

        try:
            with _TextReader(stream, config) as text:
                for batch in text.open(refuse, reading, converting):
                    yield batch.rename_columns(plain)
        except UnicodeError as error:
            raise _unreadable_csv_error(file, config, error) from error
        except pyarrow.ArrowException as error:
            if ragged:
                row = ragged[0]
                raise DataInvalid(
                    f"{file.name!r} row {row.number - 1 - config.skip_rows} has {row.actual_columns} values, but there"
                    f" are {row.expected_columns} columns; mend the row, or correct config.delimiter"
                ) from error
            raise _unreadable_csv_error(file, config, error) from error

    return plain, batches()


class _TextReader:
    """Arrow's reader of a text; where the `with` statement ends, no thread of Arrow holds it or what it read.

    Arrow reads ahead in threads of its own, and lets go of Python's objects there, also after an error. A thread that
    does so while the interpreter ends kills the process, or never ends.
    """

    def __init__(self, stream: IO[bytes], config: CsvConfig) -> None:
        self._stream = stream
        self._config = config
        self._faults: list[Exception] = []
        self._reader: Any = None
        self._lent: list[weakref.ref[Any]] = []
        self._released: SimpleQueue[weakref.ref[Any]] = SimpleQueue()

    def open(
        self,
        refuse: Callable[[pyarrow.csv.InvalidRow], str],
        reading: pyarrow.csv.ReadOptions,
        converting: pyarrow.csv.ConvertOptions | None = None,
    ) -> pyarrow.csv.CSVStreamingReader:
        """Open Arrow's streaming reader of the text, once.

        :param refuse: called with each row that has another number of values
        """
        text = _Text(self._stream, self._config.encoding, refuse, self._lend, self._faults)
        self._lend(text)
        parsing = pyarrow.csv.ParseOptions(
            delimiter=self._config.delimiter, newlines_in_values=True, invalid_row_handler=text.refuse
        )
        self._reader = pyarrow.csv.open_csv(text, reading, parsing, converting)
        return self._reader

    def _lend(self, item: object) -> None:
        # A put runs no Python code, so that a thread which drops the item cannot be interrupted there.
        self._lent.append(weakref.ref(item, self._released.put))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        clear_frames(trace)  # that of `open` holds the text
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        returned = 0
        with suppress(Empty):
            while returned < len(self._lent):
                self._released.get(timeout=RELEASE_SECONDS)
                returned += 1
        if self._faults and (kind is None or issubclass(kind, pyarrow.ArrowException)):
            raise self._faults[0]


class _Text(io.RawIOBase):
    """A text in UTF-8, as threads of Arrow read it; it ends where the stream cannot be read or decoded.

    No exception passes through Arrow, whose threads would hold it. UTF-8 is decoded too, as Arrow takes it as it is.

    :param lend: called with each object that Arrow gets
    :param faults: gets the exception
    """

    def __init__(
        self,
        stream: IO[bytes],
        encoding: str,
        refuse: Callable[[pyarrow.csv.InvalidRow], str],
        lend: Callable[[object], None],
        faults: list[Exception],
    ) -> None:
        self._stream = stream
        self._refuse = refuse
        self._lend = lend
        self._faults = faults
        self._passed_on = codecs.lookup(encoding).name in _PASSED_ON
        self._decoder = codecs.getincrementaldecoder("utf-8" if self._passed_on else encoding)()
        self._converted = b""

    @override
    def readable(self) -> bool:
        return True

    @override
    def read(self, size: int = -1) -> memoryview:
        content = b""
        if not self._faults:
            try:
                content = self._read_valid_bytes(size) if self._passed_on else self._convert(size)
            except Exception as error:
                self._faults.append(error.with_traceback(None))
        given = memoryview(content)
        self._lend(given)
        return given

    def _read_valid_bytes(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._decoder.decode(content, final=not content)
        return content

    def _convert(self, size: int) -> bytes:
        while not self._converted:
            content = self._stream.read(size)
            self._converted = self._decoder.decode(content, final=not content).encode()
            if not content:
                break
        given, self._converted = self._converted[:size], self._converted[size:]
        return given

    def refuse(self, row: pyarrow.csv.InvalidRow) -> str:
        """What to do with a row that has another number of values."""
        return self._refuse(row)


def _header(stream: IO[bytes], file: Path, config: CsvConfig) -> list[str]:
    """Names of columns, as the first row has them."""
    reading = pyarrow.csv.ReadOptions(use_threads=False, skip_rows=config.skip_rows)
    try:
        with _TextReader(stream, config) as text:
            names: list[str] = text.open(lambda _: "skip", reading).schema.names
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise _unreadable_csv_error(file, config, error) from error
    stream.seek(0)
    return names


def names_line(file: Path, config: CsvConfig, needed: Collection[str]) -> tuple[int, str] | None:
    """Number from 1 of the line that has these names, and the delimiter between them; None where no early one has."""
    with file.open(encoding=config.encoding, errors="replace", newline=None) as text:
        lines = list(islice(text, SEARCHED_LINES))
    for number, line in enumerate(lines, 1):
        for delimiter in dict.fromkeys((config.delimiter, *DELIMITERS)):
            values = _split_line(line.removeprefix("\ufeff"), delimiter)
            if set(_plain_names(values)).issuperset(needed):
                return number, delimiter
    return None


def _split_line(line: str, delimiter: str) -> list[str]:
    """The values of a line; none where one is longer than `csv` reads, as between other delimiters than the file's."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _unreadable_csv_error(file: Path, config: CsvConfig, error: Exception) -> DataInvalid:
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
    if line <= config.skip_rows and line:
        return DataInvalid(
            f"{file.name!r} has {count_text(line, 'line')}, and config.skipRows is {config.skip_rows}; set it to the"
            " number of lines before the names"
        )
    return DataInvalid(
        f"{file.name!r} cannot be read ({quoted_value(first_line(error))}); write the file anew"
    )


def open_parquet(stream: IO[bytes], file: Path, config: ParquetConfig) -> OpenedTable:
    """A Parquet file, of which only the columns that are needed are decoded.

    :raises DataInvalid: it is no Parquet file, or is damaged
    """
    try:
        # Without pre_buffer it reads a row group at a time, here and in no thread of Arrow.
        _refuse_other_formats(stream, file, config)
        opened = pyarrow.parquet.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
        names: list[str] = opened.schema_arrow.names
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:  # names of columns may be no UTF-8
        raise _damaged_parquet_error(file, error) from error
    plain = _plain_names(names)
    used = plain if config.columns is None else config.used_columns
    wanted = [name for name, known in zip(names, plain, strict=True) if known in used]

    def batches() -> Generator[pyarrow.RecordBatch, None, None]:
        try:
            for batch in opened.iter_batches(BATCH_ROWS, columns=wanted, use_threads=False):
                yield batch.rename_columns(_plain_names(batch.schema.names))
        except (pyarrow.ArrowException, OSError, UnicodeError) as error:
            raise _damaged_parquet_error(file, error) from error

    return plain, batches()


def _damaged_parquet_error(file: Path, error: Exception) -> DataInvalid:
    return DataInvalid(
        f"{file.name!r} cannot be read as Parquet ({quoted_value(first_line(error))}); write the file anew"
    )


def _plain_names(names: Sequence[str]) -> list[str]:
    """Names of columns without surrounding white space, in the plain form of Unicode."""
    return [unicodedata.normalize("NFC", name.strip()) for name in names]


def _refuse_other_formats(stream: IO[bytes], file: Path, config: CsvConfig | ParquetConfig) -> None:
    problem = format_problem(stream.read(SIGNATURE_BYTES), config)
    stream.seek(0)
    if problem is not None:
        raise DataInvalid(f"{file.name!r} {problem[0]}; {problem[1]}")
