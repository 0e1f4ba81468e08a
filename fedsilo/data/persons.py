"""Whose each example is, where the data say: what differential privacy of persons goes by. It never leaves the silo.

Messages do not quote what a person is called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fedsilo.api.text import first_line
from fedsilo.errors import DataInvalid, quoted_value


def checked_persons(values: object, count: int) -> np.ndarray:
    """Whose each example is as text, (count,), without white space around it.

    :param values: as a loader gave them, whole numbers or texts.
    :param count: how many examples there are.
    :raises DataInvalid: they are of another kind or number, or one is missing.
    """
    try:
        found = np.asarray(values)
    except (Exception, SystemExit) as error:  # an object's `__array__` may raise anything
        raise DataInvalid(
            f"persons are not an array ({quoted_value(first_line(error))}); give one for each example"
        ) from error
    if found.dtype == object and all(isinstance(value, str) for value in found.flat):
        found = found.astype(np.str_)
    if found.dtype.kind not in "iuU":
        raise DataInvalid(
            f"persons have dtype {found.dtype}; give a whole number or a text for each example, and leave none out"
        )
    if found.shape != (count,):
        raise DataInvalid(
            f"persons have shape {found.shape}, but there are {count} examples; give one for each"
        )
    texts: np.ndarray = np.char.strip(found.astype(np.str_))
    missing = texts == ""
    if missing.any():
        raise DataInvalid(
            f"item {int(np.argmax(missing))}: the person is missing; say whose it is, or remove it"
        )
    return texts


def persons_in_paths(paths: Sequence[str], expression: str) -> list[str]:
    """The person that the one group of a regular expression finds in each path.

    :raises DataInvalid: it finds none, naming the file.
    """
    pattern, persons = re.compile(expression), []
    for path in paths:
        found = pattern.search(path)
        if found is None or not found[1]:
            raise DataInvalid(
                f"{quoted_value(repr(path))}: config.person ({expression}) finds nobody in it; rename the file, or "
                "correct config.person"
            )
        persons.append(found[1])
    return persons
