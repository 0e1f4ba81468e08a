"""The manifests of examples/ as documents, for tests and benchmarks that change them."""

from __future__ import annotations

from typing import Any

import yaml

from hack.paths import ROOT


def documents(name: str) -> list[Any]:
    """The documents of an example."""
    return list(yaml.safe_load_all((ROOT / "examples" / name).read_text()))
