"""What is wrong with a Silo whatever job asks it: one check for validation and for the Silo's own condition.

An admission asks the same of the one dataset that its job names (`check_dataset`). Every finding names a field of the
Silo, what is written there, and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.api.silo import Silo
from fedsilo.data.catalogue import check_dataset
from fedsilo.methods import registry


def silo_findings(silo: Silo) -> Iterator[Finding]:
    """Everything that no job could use as it is written."""
    for position, dataset in enumerate(silo.spec.datasets):
        for path, value, problem, remedy in check_dataset(dataset):
            yield f"spec.datasets[{position}].{path}", value, problem, remedy
    yield from _policy_findings(silo)


def _policy_findings(silo: Silo) -> Iterator[Finding]:
    """Methods that are misspelt: such a policy permits nothing that was meant. Another package may bring others."""
    known = registry.names()
    for position, name in enumerate(silo.spec.policy.methods or ()):
        near = [] if name in known else difflib.get_close_matches(name, known, n=1)
        if near:
            path = f"spec.policy.methods[{position}]"
            yield path, name, "is not installed here", f"did you mean {near[0]}?"
