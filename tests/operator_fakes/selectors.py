"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import CallRefused

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_EQUALITY_TERM = re.compile(r"^([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)$")
_PRESENCE_TERM = re.compile(r"^(!?)\s*([^=!\s()]+)$")


def labels_match(labels: Mapping[str, str], selector: str) -> bool:
    """Whether labels fulfil every requirement of a selector.

    :raises CallRefused: when it cannot be read.
    """
    return all(_holds(labels, part.strip()) for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _holds(labels: Mapping[str, str], requirement: str) -> bool:
    if found := _SET.match(requirement):
        name, word, values = found.groups()
        return (labels.get(name) in [value.strip() for value in values.split(",")]) == (word == "in")
    if found := _EQUALITY_TERM.match(requirement):
        name, sign, value = found.groups()
        return (labels.get(name) == value) == (sign != "!=")
    if found := _PRESENCE_TERM.match(requirement):
        absent, name = found.groups()
        return (name in labels) != bool(absent)
    raise CallRefused(f"unable to parse requirement: {requirement!r}")


def fields_match(obj: Object, selector: str) -> bool:
    """Whether fields, named by their path, have the values that a selector asks for."""
    found = {}
    for part in filter(None, selector.split(",")):
        path, _, _ = part.partition("!=" if "!=" in part else "=")
        value: object = obj
        for name in path.split("."):
            value = value.get(name, "") if isinstance(value, dict) else ""
        found[path] = str(value)
    return labels_match(found, selector)
