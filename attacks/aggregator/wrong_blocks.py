"""Updates with a block more, a block less, blocks in another order, and of another shape, dtype and kind.

By: a silo of the job with its own key.

Must: refused before any payload is read, with the code that the specification names for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from attacks.live_aggregator import LiveAggregator
from fedsilo.wire import Contract, ExpectedBlock
from tests.integration.service.client import contents_of, forge, header_of

SMUGGLED_BLOCK = ExpectedBlock("model", "patients", (4,), "float32")


def mismatched_update(
    target: LiveAggregator, blocks: Sequence[ExpectedBlock], arrays: list[np.ndarray]
) -> bytes:
    """An update of other blocks that claims to be of the right contract."""
    given = target.fetched_task
    contract = Contract(tuple(blocks), given.contract.metrics)
    other = target.silo.update(given, contract=contract, blocks=list(zip(blocks, arrays, strict=True)))
    header = dataclasses.replace(header_of(other), contract=bytes.fromhex(given.contract.digest()))
    return forge(target.silo.key, header, contents_of(other))


def attack(target: LiveAggregator) -> None:
    given, patch = target.fetched_task, target.silo.patch
    blocks = list(given.contract.blocks)
    arrays = [given.tree[block.name] for block in blocks]
    turned = np.ascontiguousarray(arrays[0].T) if arrays[0].ndim > 1 else arrays[0].reshape(-1, 1)
    for first, array, code in (
        ({"shape": turned.shape}, turned, "wrong-shape"),
        ({"dtype": "float64"}, arrays[0].astype(np.float64), "wrong-dtype"),
        ({"kind": "averaged_gradients"}, arrays[0], "wrong-kind"),
    ):
        other = [dataclasses.replace(blocks[0], **first), *blocks[1:]]
        target.expect(code, patch(target.task, mismatched_update(target, other, [array, *arrays[1:]])))
    wider = mismatched_update(target, [*blocks, SMUGGLED_BLOCK], [*arrays, np.arange(4, dtype=np.float32)])
    target.expect("unexpected-block", patch(target.task, wider))
    target.expect(
        "unexpected-block", patch(target.task, mismatched_update(target, blocks[::-1], arrays[::-1]))
    )
    target.expect("missing-block", patch(target.task, mismatched_update(target, blocks[1:], arrays[1:])))
