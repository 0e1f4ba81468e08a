"""The loader `python:module:function` calls the institution's own code, which may raise or return anything."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsilo.api.python_import import error_summary, import_user_code
from fedsilo.api.text import comma_separated
from fedsilo.data.arrays import LoadedData, distinct_names
from fedsilo.data.features import numeric_array
from fedsilo.data.sources import FeatureSource
from fedsilo.errors import DataInvalid

MAX_ITEMS = 4
"""Items that an error names."""


def call_function(name: str, arguments: dict[str, Any]) -> LoadedData:
    """What `python:module:function` returns for the configuration as keyword arguments: (features, labels), and perhaps
    the names of the classes by their number in the labels, and whose each example is.

    The function is the institution's own code and may raise anything; one that ends the process would otherwise be a
    trainer that has nothing more to do.
    """
    remedy = "install its package in the trainer's image"
    function = import_user_code(name, field="loader", remedy=remedy, absent=DataInvalid, broken=DataInvalid)
    try:
        result = function(**arguments)
    except (Exception, SystemExit) as error:
        raise DataInvalid(
            f"loader: {name} raised {error_summary(error, saw_data=True)}; correct the function or its config"
        ) from error
    if not isinstance(result, tuple) or len(result) not in (2, 3, 4):
        raise DataInvalid(
            f"loader: {name} returned {type(result).__name__}; return a tuple (features, labels)"
            " or (features, labels, names of the classes, persons), whose last one or two may be left out"
        )
    features, labels, names, persons = (*result, None, None)[:4]
    features = _own_source(name, features)
    if names is None:
        return LoadedData(features, labels, persons=persons)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataInvalid(
            f"loader: {name} returned {type(names).__name__} for the names of the classes; return a list"
            " of strings, or leave it out"
        )
    classes = distinct_names(names, f"loader: {name}: names of the classes")
    return LoadedData(features, labels, classes, persons=persons)


@dataclass(frozen=True)
class FunctionSource:
    """Features that the institution's own code reads by item, which may raise or return anything.

    :param name: of the loader, for errors.
    """

    name: str
    own: FeatureSource
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, items: np.ndarray) -> np.ndarray:
        """What the own `read` gives for these items.

        :raises DataInvalid: it raises, naming the first item that it cannot read, or gives something else than features
        """
        try:
            found = self.own.read(items)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise self._unreadable_item_error(items, error) from error
        where = f"{_items_text(items)}: loader: {self.name}"
        features = numeric_array(f"{where}: features of its read", found)
        if features.shape[:1] != (len(items),):
            raise DataInvalid(
                f"{where}: read returned shape {list(features.shape)} for {len(items)} items; return one row for "
                "each, in the order asked for"
            )
        if (features.dtype == np.uint8) != (self.dtype == np.uint8):
            raise DataInvalid(
                f"{where}: read returned {features.dtype}, and dtype of its object is {self.dtype}; make them the "
                "same, since bytes are scaled by 1/255 and other numbers are not"
            )
        return features

    def _unreadable_item_error(self, items: np.ndarray, error: BaseException) -> DataInvalid:
        """The error of the first item that cannot be read by itself; of all, where each of them can."""
        for item in items if len(items) > 1 else ():
            try:
                self.own.read(np.array([item]))
            except (Exception, SystemExit) as own:
                items, error = np.array([item]), own
                break
        raised = error_summary(error, saw_data=True)
        return DataInvalid(
            f"{_items_text(items)}: loader: {self.name}: read raised {raised}; mend or remove what it reads, or "
            "correct the function"
        )


def _own_source(name: str, features: object) -> object:
    """Features that are read by item, as a source of ours; others as they are.

    :raises DataInvalid: their shape or dtype says nothing.
    """
    try:
        if isinstance(features, np.ndarray) or not isinstance(features, FeatureSource):
            return features
        shape = tuple(operator.index(number) for number in features.shape)
        return FunctionSource(name, features, shape, np.dtype(features.dtype))
    except (Exception, SystemExit) as error:
        raise DataInvalid(
            f"loader: {name} returned {type(features).__name__}, whose shape or dtype is none of NumPy's "
            f"({error_summary(error, saw_data=True)}); give a tuple of whole numbers and a numpy.dtype"
        ) from error


def _items_text(items: np.ndarray) -> str:
    word = "item" if len(items) == 1 else "items"
    return f"{word} {comma_separated([str(item) for item in items], MAX_ITEMS)}"
