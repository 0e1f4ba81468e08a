"""A method says whether sums over silos are enough for its server half, and reads no more of a silo than it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.methods.interface import Exchange, MethodConfig, ServerContext, ServerHalf, Updates
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.simulation.simulate import simulate
from tests.federate import job_spec
from tests.unit.engine.synthetic import Diary
from tests.unit.methods.forms import FORMS, form_manifest, form_spec

LABELS = {"a": np.repeat([0, 1], 8), "b": np.repeat([2, 3], 6), "c": np.repeat([0, 1, 2], 4)}


class Watched:
    """Updates in which it is noted what is read of a silo by itself, and refused where sums should do.

    :param single: kinds that may be read.
    :param read: kinds that were.
    """

    def __init__(self, updates: Updates, single: Mapping[str, str], read: set[str]) -> None:
        self._updates, self._single, self._read = updates, single, read

    @property
    def silos(self) -> tuple[str, ...]:
        return self._updates.silos

    @property
    def count(self) -> int:
        return self._updates.count

    def samples(self, silo: str) -> int:
        return self._updates.samples(silo)

    def metrics(self, silo: str) -> Mapping[str, float]:
        return self._updates.metrics(silo)

    def names(self, silo: str, kind: str) -> Sequence[str]:
        return self._updates.names(silo, kind)

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        return self._updates.weighted_sum(kind, weights)

    def tensors(self, silo: str, kind: str) -> Tree:
        if kind not in self._single:
            raise MethodError(f"the {kind} of {silo} are read, and the declaration says that sums do")
        self._read.add(kind)
        return self._updates.tensors(silo, kind)


def singly_read(
    directory: Path, form: str, monkeypatch: pytest.MonkeyPatch, single: Mapping[str, str]
) -> set[str]:
    """The kinds that the server half of the form's job has read silo by silo."""
    manifest, read = form_manifest(directory, form, LABELS), set[str]()
    declaration = type(registry.bind(manifest.job.spec))
    made = declaration.server

    def watched(method: Method) -> ServerHalf:
        half = made(method)
        fold = half.aggregate

        def aggregate(job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
            return fold(job, state, exchange, Watched(updates, single, read))

        object.__setattr__(half, "aggregate", aggregate)  # a frozen dataclass, perhaps
        return half

    monkeypatch.setattr(declaration, "server", watched)
    simulate(manifest, directory, directory / "job")
    return read


@pytest.mark.parametrize("form", FORMS)
def test_the_server_half_reads_of_single_silos_what_its_declaration_says(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = registry.bind(form_spec(form, list(LABELS)))
    sent = {payload.kind for step in method.steps().values() for payload in step.payloads}
    assert method.single_updates.keys() <= sent
    assert all(method.single_updates.values()), "say why sums are not enough"
    read = singly_read(tmp_path, form, monkeypatch, method.single_updates)
    assert read == method.single_updates.keys(), "what is never read silo by silo need not be seen"


def test_what_is_read_against_the_declaration_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MethodError, match="the class_counts of silos/a are read"):
        singly_read(tmp_path, "fedconcat", monkeypatch, {})


def test_a_method_that_says_nothing_may_read_anything() -> None:
    single = Diary(job_spec("fedavg", 2), MethodConfig()).single_updates
    assert list(single) == ["averaged_gradients"]
