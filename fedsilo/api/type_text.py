"""What may stand in a field, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedsilo.api.patterns import DURATION, FORMATS, QUANTITY, TIME

_PATTERN_TEXTS = FORMATS | {DURATION: "duration such as `1h30m`", QUANTITY: "amount such as `10Gi`"}
_PATTERN_TEXTS |= {TIME: "time (RFC 3339) such as `2026-07-01T00:00:00Z`"}


def type_text(content: dict[str, Any]) -> str:
    """What may stand in a field, from its JSON schema, in Markdown."""
    if content.get("pattern") in _PATTERN_TEXTS:
        return _PATTERN_TEXTS[content["pattern"]]
    if "x-type" in content:
        return str(content["x-type"])
    if "anyOf" in content:
        return " or ".join(type_text(choice) for choice in content["anyOf"])
    if "$ref" in content:
        name = content["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in content or "enum" in content:
        return ", ".join(f"`{choice}`" for choice in content.get("enum", [content.get("const")]))
    match content["type"]:
        case "array":
            length = _range_text(content, "minItems", "maxItems")
            return f"list{' of ' if length else ''}{length}: {type_text(content['items'])}"
        case "object":
            forms = [*content.get("patternProperties", {}).values(), content.get("additionalProperties")]
            values = forms[0]
            return f"mapping to {type_text(values)}" if isinstance(values, dict) else "mapping"
        case "integer" | "number" as number:
            bounds = (_range_text(content, "minimum", "maximum"), *_strictly(content))
            return " ".join((number, *(bound for bound in bounds if bound)))
        case "string":
            length = _range_text(content, "minLength", "maxLength")
            return f"string of {length} characters" if length else "string"
        case other:
            return str(other)


def _range_text(content: dict[str, Any], low: str, high: str) -> str:
    least, most = (content.get(low), content.get(high))
    if least is not None and most is not None:
        return f"{least:.16g} to {most:.16g}"
    if least is not None:
        return f"at least {least:.16g}"
    return f"at most {most:.16g}" if most is not None else ""


def _strictly(content: dict[str, Any]) -> Iterator[str]:
    if "exclusiveMinimum" in content:
        yield f"above {content['exclusiveMinimum']:g}"
    if "exclusiveMaximum" in content:
        yield f"below {content['exclusiveMaximum']:g}"
