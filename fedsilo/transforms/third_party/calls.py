"""Calls of code of another package, whose errors are its author's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fedsilo.errors import FedsiloError, MethodError, Problem

T = TypeVar("T")


def call_package(transform: str, verb: str, call: Callable[[], T]) -> T:
    """What code of a package returns.

    :raises MethodError: when it fails, also where it makes a `TensorSpec` that cannot travel.
    """
    try:
        with np.errstate(all="ignore"):  # of numbers of which whoever checks them says that they are none
            return call()
    except Problem as problem:  # no peer has sent anything
        raise MethodError(f"transform {transform}: {verb} failed: {problem.detail}") from problem
    except FedsiloError:
        raise
    except Exception as error:
        raise MethodError(f"transform {transform}: {verb} failed: {type(error).__name__}: {error}") from error
