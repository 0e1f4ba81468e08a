"""Good manifests from which the tests start."""

from __future__ import annotations

from pathlib import Path

GOOD_MANIFESTS = Path(__file__).parent / "good"
DIGITS = (GOOD_MANIFESTS / "digits.yaml").read_text()


def edited_manifest(*replacements: tuple[str, str]) -> str:
    """The digits manifest with passages replaced; each must occur exactly once."""
    text = DIGITS
    for old, new in replacements:
        if text.count(old) != 1:
            raise AssertionError(f"{old!r} occurs {text.count(old)} times in digits.yaml")
        text = text.replace(old, new)
    return text
