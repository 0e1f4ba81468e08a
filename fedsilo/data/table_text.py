"""How people write numbers and dates in text, and which settings of a table read what a value is.

Remedies tell the form of the values of a column, never a value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

from fedsilo.data.table_configuration import TableConfig

MINUS = "\u2212"
"""Minus sign of typography, as word processors and R's packages for tables write it."""

_SPACES = "[\\s\u00a0\u2007\u2009\u202f]"
_APOSTROPHES = "['\u2019]"

_DATES = (
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d%b%Y",
    "%b %d, %Y",
)
_TIMES = (
    "",
    " %H:%M",
    " %H:%M:%S",
    " %H:%M:%S.%f",
    "T%H:%M:%S",
    "T%H:%M:%S%z",
    "T%H:%M:%S.%f%z",
    " %I:%M %p",
)
DATE_FORMATS = tuple(date + time for date, time in product(_DATES, _TIMES))
"""Formats that are proposed for dates."""

_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)

SEARCHED_TEXTS = 1000
"""How many values of a column are looked at before a setting is proposed."""


def days_of(text: str, form: str) -> float:
    """Days from 1970-01-01 to a date, by UTC where the text has an offset.

    :param form: format of the text, as `strptime` reads it
    :raises ValueError: the text is no such date
    """
    moment = datetime.strptime(text, form)
    return (moment - (_EPOCH if moment.tzinfo is None else _EPOCH.replace(tzinfo=UTC))) / _DAY


def is_date(text: str, form: str) -> bool:
    """Whether a text is a date of this format."""
    try:
        days_of(text, form)
    except ValueError:
        return False
    return True


def written_number(decimal: str, thousands: str | None) -> str:
    """Regular expression of a number with these separators: groups of two or three digits, the last of three."""
    whole = "[0-9]+"
    if thousands is not None:
        separator = separator_expression(thousands)
        whole += f"|[0-9]{{1,3}}(?:{separator}[0-9]{{2,3}})*{separator}[0-9]{{3}}"
    point = re.escape(decimal)
    return f"^[+-]?(?:(?:{whole})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def separator_expression(thousands: str) -> str:
    """Regular expression of a separator, which a keyboard has in one form and typography in several."""
    for alike in (_SPACES, _APOSTROPHES):
        if re.fullmatch(alike, thousands):
            return alike
    return re.escape(thousands)


def number_remedy(wrong: str, texts: Sequence[str], config: TableConfig) -> str | None:
    """What to do with a text that is no number as the table's settings have it; None where nothing is known.

    :param texts: of the same column, by which a setting is found that reads all of them
    """
    if (signs := _signs_remedy(wrong)) is not None:
        return signs
    for read, before in ((texts[:SEARCHED_TEXTS], ""), ([wrong], "mend the value, or ")):
        if settings := _separator_settings(read, config):
            return f"{before}set {' or '.join(settings)}"
        if forms := _date_formats(read):
            return f"{before}set config.dates of the column to {_alternatives(forms)}"
    return None


def _signs_remedy(wrong: str) -> str | None:
    """What to do with signs that no setting reads, since it could not be known what a silo means by them."""
    if wrong.endswith(("%", "\u2030")):
        return "write the numbers without the percent sign, in all silos alike"
    if any(unicodedata.category(letter) == "Sc" for letter in wrong):
        return "write the numbers without the sign of the currency, in all silos alike"
    if re.fullmatch(f"\\(.*[0-9].*\\)|[0-9].*[-{MINUS}]", wrong):
        return "write the minus sign before the number"
    if any(letter.isdigit() and not letter.isascii() for letter in wrong):
        return "write the numbers with the digits 0 to 9"
    return None


def date_remedy(texts: Iterable[str]) -> str:
    """What to do where texts are no dates of the format that the table's settings have."""
    forms = _date_formats(list(texts)[:SEARCHED_TEXTS])
    return f"set it to {_alternatives(forms)}" if forms else "mend or remove the row"


def _alternatives(forms: Sequence[str]) -> str:
    return " or ".join(map(repr, forms))


def _date_formats(texts: Sequence[str]) -> list[str]:
    if not all(any(letter.isdigit() for letter in text) for text in texts):
        return []
    return [form for form in DATE_FORMATS if all(is_date(text, form) for text in texts)]


def _separator_settings(texts: Sequence[str], config: TableConfig) -> list[str]:
    """Separators with which all texts are numbers, as settings: first those that change one setting only."""
    plain = [text.replace(MINUS, "-") for text in texts]
    found: list[tuple[str, str | None]] = []
    for thousands, decimal in product((None, ",", ".", " ", "'"), dict.fromkeys((config.decimal, ".", ","))):
        if decimal == thousands or any(_is_included(other, (decimal, thousands)) for other in found):
            continue
        expression = re.compile(written_number(decimal, thousands))
        if all(expression.match(text) for text in plain):
            found.append((decimal, thousands))
    return [_settings(decimal, thousands, config) for decimal, thousands in found]


def _is_included(simple: tuple[str, str | None], other: tuple[str, str | None]) -> bool:
    """Whether another pair of separators adds a setting to one that suffices."""
    (decimal, thousands), (other_decimal, other_thousands) = simple, other
    return thousands == other_thousands or (thousands is None and decimal == other_decimal)


def _settings(decimal: str, thousands: str | None, config: TableConfig) -> str:
    changed = {"decimal": (config.decimal, decimal), "thousands": (config.thousands, thousands)}
    return " and ".join(
        f"config.{name} to {'null' if value is None else repr(value)}"
        for name, (present, value) in changed.items()
        if present != value
    )
