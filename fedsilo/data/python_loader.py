"""The loader `python:module:function` calls the institution's own code, which may raise or return anything."""

from __future__ import annotations

from typing import Any

from fedsilo.api.python_import import error_summary, import_user_code
from fedsilo.data.arrays import LoadedData, distinct_names
from fedsilo.errors import DataInvalid


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
    if names is None:
        return LoadedData(features, labels, persons=persons)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataInvalid(
            f"loader: {name} returned {type(names).__name__} for the names of the classes; return a list"
            " of strings, or leave it out"
        )
    classes = distinct_names(names, f"loader: {name}: names of the classes")
    return LoadedData(features, labels, classes, persons=persons)
