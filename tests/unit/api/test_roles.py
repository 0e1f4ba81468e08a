"""Roles that are installed with the operator name what they allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tests.paths import ROOT


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rule of every role in `manifests/`, with the file that it is in."""
    for path in sorted((ROOT / "manifests").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document.get("kind") in ("Role", "ClusterRole"):
                yield from ((path.name, rule) for rule in document["rules"])


def test_no_rule_has_a_wildcard() -> None:
    found = list(rules())
    assert found
    for name, rule in found:
        assert not [value for values in rule.values() for value in values if "*" in value], (name, rule)


def test_no_rule_aggregates_others() -> None:
    """Such a role would grow with whatever somebody else labels."""
    for path in (ROOT / "manifests").rglob("*.yaml"):
        assert "aggregationRule" not in path.read_text(), path.name
