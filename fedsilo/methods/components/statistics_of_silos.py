"""Statistics as silos send them: of each silo, or of all together where only a sum is seen."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.methods.reading import Sums, Updates
from fedsilo.methods.state import Tree


def of_each(updates: Updates, *kinds: str) -> Iterator[tuple[str, Tree]]:
    """Each silo's name and its tensors of these kinds."""
    for silo in updates.silos:
        yield silo, {name: array for kind in kinds for name, array in updates.tensors(silo, kind).items()}


def of_all(sums: Sums, *kinds: str) -> Iterator[tuple[str, Tree]]:
    """The tensors of these kinds of all silos, in place of one silo's: each as its payload says it is combined."""
    yield "all silos", {name: array for kind in kinds for name, array in sums.combine(kind).items()}
