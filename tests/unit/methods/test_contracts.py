"""What a method declares is what its silos send, block for block and byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedsilo.api.communication import UploadSpec
from fedsilo.encodings.registry import with_encoding
from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE
from fedsilo.methods.step import NAMED_PERSONAL_ACCURACY, NAMED_SCORES
from fedsilo.transforms.learned import learned_names
from fedsilo.wire import Contract, ExpectedBlock, UpdateReader, open_task, open_update
from tests.federate import TASK_KEY, local_silos, open_engine
from tests.unit.methods.forms import each_form, form_spec, holding

LABELS = {"a": np.repeat([0, 1, 2, 3], 6), "b": np.repeat([0, 1, 2, 3], 5)}
"""All classes in both, so that no optional block is left out, and enough to score on some."""


def blocks(update: UpdateReader) -> Iterator[tuple[str, str, tuple[int, ...], str, int]]:
    """Kind, name, shape, dtype and bytes of everything that an update holds."""
    for entry in update.header.blocks:
        array = update.tensor(entry.name)
        yield entry.kind, entry.name, array.shape, str(array.dtype), array.nbytes


@pytest.mark.parametrize("form", each_form())
def test_every_update_has_the_blocks_of_the_contract(tmp_path: Path, form: str) -> None:
    spec = form_spec(form, list(LABELS), data={"validationFraction": 0.25})
    engine = open_engine(tmp_path / "aggregator", spec)
    silos = local_silos(tmp_path, holding(tmp_path, spec, LABELS))
    steps = set()
    while not engine.ended:
        for silo in silos:
            given = engine.task(silo.reference)
            assert given is not None
            task = open_task(given.sealed, TASK_KEY.verify_key)
            path = silo.sign(engine, given.contract, given.sealed)
            with open_update(path) as update:
                sent = list(blocks(update))
                metrics = set(update.header.metrics)
            promised = {(b.kind, b.name, b.shape, b.dtype) for b in given.contract.blocks}
            assert {block[:4] for block in sent} == promised
            assert sum(block[4] for block in sent) == given.contract.max_bytes()
            # What a silo reports by its name, its policy permits.
            assert metrics == set(given.contract.metrics) - {NAMED_PERSONAL_ACCURACY, NAMED_SCORES}
            steps.add(task.step)
            silo.send(engine, given.id, path)
        engine.settle()
    assert engine.failure is None
    method = registry.bind(spec)
    assert steps == {*method.steps(), *((EVALUATE,) if method.models.scored else ())}


@pytest.mark.parametrize("upload", [{"encoding": "int8"}, {"compression": "zstd"}])
def test_the_tensors_of_a_class_are_never_encoded(upload: dict[str, str]) -> None:
    head = ExpectedBlock("model", "head/3", (8,), "float32", label=3)
    contract = Contract((ExpectedBlock("model", "w", (8,), "float32"), head))
    encoded = with_encoding(contract, UploadSpec.model_validate(upload), learned_names(contract))
    assert encoded.encoding is not None and head in encoded.blocks
