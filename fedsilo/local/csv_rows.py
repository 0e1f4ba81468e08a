"""Rows by column name as the bytes of a CSV file, which any spreadsheet opens without running anything of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.api.text import for_spreadsheet


def csv_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A heading with every name in the order in which the rows first have it, and a line for each row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name, "")) for name in names] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return for_spreadsheet(value)
    return json.dumps(value) if isinstance(value, dict | list | bool) else value
