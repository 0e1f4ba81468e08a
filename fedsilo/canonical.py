"""Canonical JSON is one encoding of an object, however an API server or a person has written it.

Keys are sorted by code point, nothing is between tokens, text is UTF-8, a whole number has no fraction (RFC 8785,
section 3.2.2.3), and nulls are left out: an API server gives `mu: 1.0` back as `1` and may drop a null, and neither
makes it another object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def canonical_json(fields: Mapping[str, Any]) -> bytes:
    """The canonical JSON of an object.

    :raises ValueError: for NaN, infinity, and text that is not Unicode.
    """
    text = json.dumps(
        canonical_form(fields), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def canonical_form(value: Any) -> Any:
    """The value as canonical JSON writes it: without nulls, whole numbers without a fraction."""
    match value:
        case Mapping():
            return {key: canonical_form(item) for key, item in value.items() if item is not None}
        case list():
            return [canonical_form(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
