"""What a file is by its first bytes, where it is no table in text.

Sources: the formats' own specifications, and RFC 1952 (gzip), RFC 8878 (Zstandard).
"""

from __future__ import annotations

import codecs

from fedsilo.data.table_configuration import CsvConfig, ParquetConfig

SIGNATURE_BYTES = 16
"""Bytes of a file that are looked at."""

_DECOMPRESS = "decompress it"
_SAVE = "save the table as CSV in UTF-8"

_SIGNATURES = (
    (b"\x1f\x8b", "is compressed with gzip", _DECOMPRESS),
    (b"\x28\xb5\x2f\xfd", "is compressed with Zstandard", _DECOMPRESS),
    (b"\xfd7zXZ\x00", "is compressed with xz", _DECOMPRESS),
    (b"BZh", "is compressed with bzip2", _DECOMPRESS),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", "take the table out of it"),
    (b"PK\x03\x04", "is a workbook (xlsx, ods) or another zip archive", f"{_SAVE}, or take it out of the archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a workbook (xls)", _SAVE),
    (b"SQLite format 3\x00", "is an SQLite database", _SAVE),
    (b"ARROW1\x00\x00", "is an Arrow file (Feather)", "write it as Parquet"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file", _SAVE),
    (b"$FL2@(#)", "is an SPSS file", _SAVE),
    (b"<stata_dta>", "is a Stata file", _SAVE),
    (b"%PDF-", "is a PDF", _SAVE),
)  # fmt: skip
_TEXT_SIGNATURES = (
    (b"PAR1", "is a Parquet file", "set loader to parquet"),
    (b"<html", "is HTML", _SAVE),
    (b"<!doc", "is HTML", _SAVE),
    (b"<table", "is HTML", _SAVE),
    (b"<?xml", "is XML", _SAVE),
    (b"[{", "is JSON", _SAVE),
    (b'{"', "is JSON", _SAVE),
)  # fmt: skip
_ENCODINGS = (
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
    (b"\xef\xbb\xbf", "utf-8"),
)


def format_problem(beginning: bytes, config: CsvConfig | ParquetConfig) -> tuple[str, str] | None:
    """What a file is instead of what its loader reads, and the remedy; None where its first bytes tell nothing else.

    :param beginning: its first `SIGNATURE_BYTES`
    """
    for first, problem, remedy in _SIGNATURES:
        if beginning.startswith(first):
            return problem, remedy
    return _text_problem(beginning, config.encoding) if isinstance(config, CsvConfig) else None


def _text_problem(beginning: bytes, encoding: str) -> tuple[str, str] | None:
    for first, problem, remedy in _TEXT_SIGNATURES:
        if beginning.lower().startswith(first.lower()):
            return problem, remedy
    name = codecs.lookup(encoding).name
    for mark, its_encoding in _ENCODINGS:
        if beginning.startswith(mark) and not name.startswith((its_encoding, "utf-32")):
            return f"is text in {its_encoding.upper()}", f"set config.encoding to {its_encoding}"
    for zeros, its_encoding in ((beginning[1::2], "utf-16-le"), (beginning[::2], "utf-16-be")):
        if zeros and not any(zeros) and not name.startswith(("utf-16", "utf-32")):
            return "is text in UTF-16", f"set config.encoding to {its_encoding}"
    return None
