"""Tables of every field, made from the models: `python -m fedsilo.api.reference docs/manifests.md`.

Everything in that page after the marker is written here, so that the page cannot say what the models do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedsilo.api.agent import SiloAgent, SiloAgentStatus
from fedsilo.api.common import DURATION, FORMATS, QUANTITY, TIME
from fedsilo.api.job import FederatedJob
from fedsilo.api.silo import Silo
from fedsilo.api.status import FederatedJobStatus

MARKER = "<!-- Below this line: python -m fedsilo.api.reference docs/manifests.md -->"

_KINDS: tuple[type[BaseModel], ...] = (FederatedJob, FederatedJobStatus, Silo, SiloAgent, SiloAgentStatus)
_PATTERN_TEXTS = FORMATS | {DURATION: "duration such as `1h30m`", QUANTITY: "amount such as `10Gi`"}
_PATTERN_TEXTS |= {TIME: "time (RFC 3339) such as `2026-07-01T00:00:00Z`"}


def main(argv: list[str] | None = None) -> int:
    """Rewrite the generated part of a page."""
    (name,) = sys.argv[1:] if argv is None else argv
    page = Path(name)
    page.write_text(page.read_text().partition(MARKER)[0] + MARKER + "\n" + tables())
    return 0


def tables() -> str:
    """One section for each model, in the order in which a reader meets them."""
    sections: dict[str, str] = {}
    for kind in _KINDS:
        schema = kind.model_json_schema()
        known = schema.get("$defs", {})
        _add_section(sections, kind.__name__, schema, known)
    return "".join(sections.values())


def _add_section(sections: dict[str, str], name: str, schema: dict[str, Any], known: dict[str, Any]) -> None:
    if name in sections:
        return
    required = set(schema.get("required", ()))
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for field, content in schema["properties"].items():
        default = "required" if field in required else _default(content)
        # A description that only repeats that of the model it refers to is left out of the schema.
        meaning = content.get("description") or known[next(_children(content))]["description"]
        rows.append(f"| `{field}` | {type_text(content)} | {default} | {meaning} |")
    sections[name] = "\n".join([f"\n### {name}\n", schema["description"], "", *rows, ""])
    for child in _children(schema["properties"]):
        _add_section(sections, child, known[child], known)


def _children(part: Any) -> Iterator[str]:
    """Names of the models that a part of a schema refers to, in order."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for item in part.values():
            yield from _children(item)
    elif isinstance(part, list):
        for item in part:
            yield from _children(item)


def _default(content: dict[str, Any]) -> str:
    default = content.get("default")
    if isinstance(default, dict) and "$ref" in content:
        return "its defaults"
    if default is None and "default" not in content:
        return "`{}`"  # the only factories are those of empty mappings
    return f"`{json.dumps(default)}`"


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
            length = _between(content, "minItems", "maxItems")
            return f"list{' of ' if length else ''}{length}: {type_text(content['items'])}"
        case "object":
            values = content.get("additionalProperties")
            return f"mapping to {type_text(values)}" if isinstance(values, dict) else "mapping"
        case "integer" | "number" as number:
            bounds = (_between(content, "minimum", "maximum"), *_strictly(content))
            return " ".join((number, *(bound for bound in bounds if bound)))
        case "string":
            length = _between(content, "minLength", "maxLength")
            return f"string of {length} characters" if length else "string"
        case other:
            return str(other)


def _between(content: dict[str, Any], low: str, high: str) -> str:
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


if __name__ == "__main__":
    sys.exit(main())
