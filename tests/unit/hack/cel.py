"""The part of CEL that rules of pairs are written in, evaluated, and a specification as an API server fills it in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

from hack.crd_schemas import Schema


class Value:
    """A mapping or list as expressions see it; a field that is not there is an error, as in CEL."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __getattr__(self, name: str) -> Any:
        item = self.content[name]
        return Value(item) if isinstance(item, Mapping | list) else item

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def size(self) -> int:
        return len(self.content)


def holds(rule: str, specification: Mapping[str, Any]) -> bool:
    """Whether a specification with its defaults keeps a rule."""
    return bool(eval(_compiled_rule(rule), {"self": Value(specification)}))


@cache
def _compiled_rule(rule: str) -> CodeType:
    python = re.sub(r"has\(([\w.]+)\.(\w+)\)", r"('\2' in \1)", rule)
    python = re.sub(r"!(?!=)", " not ", python.replace("&&", "and").replace("||", "or"))
    return compile(python.strip(), rule, "eval")


def filled_value(value: Any, schema: Schema) -> Any:
    """A value with the defaults of its schema, and without nulls, which expressions take for absent."""
    if isinstance(value, list):
        return [filled_value(item, schema["items"]) for item in value]
    if not isinstance(value, Mapping) or "properties" not in schema:
        return value
    known = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
    said = {name: item for name, item in value.items() if item is not None}
    return {name: filled_value(item, schema["properties"][name]) for name, item in (known | said).items()}
