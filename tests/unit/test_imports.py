"""What import-linter has no contract for: no two modules need each other, not even by imports inside functions."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp

PACKAGES = ("fedsilo", "fedsilo_operator", "fedsilo_aggregator", "fedsilo_agent")


def test_no_circle_of_imports() -> None:
    found = grimp.build_graph(*PACKAGES)
    imports = {module: found.find_modules_directly_imported_by(module) for module in found.modules}
    ordered = list(TopologicalSorter(imports).static_order())  # a CycleError names a circle
    assert len(ordered) > 500, "the packages were not found"
