"""What a method declares is what its silos send, block for block and byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE
from fedsilo.wire import UpdateBlocks, open_task, open_update
from tests.federate import TASK_KEY, local_silos, open_federation
from tests.unit.methods.forms import FORMS, form_spec, holding

LABELS = {"a": np.repeat([0, 1, 2, 3], 4), "b": np.repeat([0, 1, 2, 3], 3)}
"""All classes in both, so that no optional block is left out."""


def blocks(update: UpdateBlocks) -> Iterator[tuple[str, str, tuple[int, ...], str, int]]:
    """Kind, name, shape, dtype and bytes of everything that an update holds."""
    for entry in update.header.blocks:
        with update.map(entry.name) as array:
            yield entry.kind, entry.name, array.shape, str(array.dtype), array.nbytes


@pytest.mark.parametrize("form", FORMS)
def test_every_update_has_the_blocks_of_the_contract(tmp_path: Path, form: str) -> None:
    spec = form_spec(form, list(LABELS))
    federation = open_federation(tmp_path / "aggregator", spec)
    silos = local_silos(tmp_path, holding(tmp_path, spec, LABELS))
    steps = set()
    while not federation.ended:
        for silo in silos:
            given = federation.task(silo.reference)
            assert given is not None
            task = open_task(given.sealed, TASK_KEY.verify_key)
            path = silo.sign(federation, given.contract, given.sealed)
            with open_update(path) as update:
                sent = list(blocks(update))
                metrics = tuple(sorted(update.header.metrics))
            promised = {(b.kind, b.name, b.shape, b.dtype) for b in given.contract.blocks}
            assert {block[:4] for block in sent} == promised
            assert sum(block[4] for block in sent) == given.contract.max_bytes()
            if task.step != EVALUATE:  # these silos hold nothing out that they could score on
                assert metrics == given.contract.metrics
            steps.add(task.step)
            silo.send(federation, given.id, path)
        federation.settle()
    assert federation.failure is None
    method = registry.get(spec.method.name)
    assert steps >= set(method.steps(registry.config_of(method, spec)))
