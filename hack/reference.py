"""Tables of every field, made from the models: `python -m hack.reference docs/manifests.md`.

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
from fedsilo.api.job import FederatedJob
from fedsilo.api.silo import Silo
from fedsilo.api.status import FederatedJobStatus
from fedsilo.api.type_text import type_text

MARKER = "<!-- Below this line: python -m hack.reference docs/manifests.md -->"

_KINDS: tuple[type[BaseModel], ...] = (FederatedJob, FederatedJobStatus, Silo, SiloAgent, SiloAgentStatus)


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


if __name__ == "__main__":
    sys.exit(main())
