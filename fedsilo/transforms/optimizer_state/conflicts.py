"""What a job that keeps the optimiser's state asks for that a method's steps have no meaning for."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.methods.components.post_training import base_method
from fedsilo.methods.method import Method


def check_kept_state(method: Method) -> Iterator[Finding]:
    """A method whose training begins anew in each round."""
    trains = base_method(method)
    if (why := trains.training.refuses_kept_state) is not None:
        problem = f"has no meaning in {trains.name}, {why}"
        yield "spec.training.optimizer.state", "keep", problem, "remove it"
